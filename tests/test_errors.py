"""Errors hold their remedies as data and word them for Python; the command line words them for a shell."""

from __future__ import annotations

import copy
import json
import pickle
import shlex
from pathlib import Path

import pytest
from streamsvm_cli.wording import shell_text, shell_value

from streamsvm import errors
from streamsvm.errors import Call, Message, Option, PlanError, Remedy, RunError, part_of_memory


def test_a_remedy_is_worded_for_python_and_for_a_shell() -> None:
    words = "continue it with {}, or replace it with {}"
    remedy = Remedy(words, Call("resume", Path("a b")), Option("force", True))
    error = RunError("a b is already a run", remedy=remedy)
    assert str(error) == "a b is already a run; " + words.format("`resume('a b')`", "force=True")
    assert shell_text(error).endswith("; " + words.format("`streamsvm resume 'a b'`", "--force"))
    assert error.remedy.options == {"force": True}


def test_options_in_python_and_in_a_shell() -> None:
    for option, python, shell in (
        (Option("memory", 5 * 2**20), "memory=5_242_880", "--memory 5M"),
        (Option("memory", 5 * 2**20 + 1), "memory=5_242_881", "--memory 6M"),
        (Option("dtype", "float64"), "dtype='float64'", "--dtype float64"),
        (Option("average", False), "average=False", "--no-average"),
        (Option("keep_duals", True), "keep_duals=True", "--keep-duals"),
        (Option("store"), "store=...", "--store"),
        (Option("valid", Path("a b.h5")), "valid='a b.h5'", "--valid 'a b.h5'"),
    ):
        message = Message("a problem", Remedy("{}", option))
        assert message == f"a problem; {python}"
        assert shell_text(message) == f"a problem; {shell}"


def test_the_budget_of_a_remedy_is_enough_in_a_shell_too() -> None:
    from streamsvm.base.text import parse_size

    for needed in (1, 2**20 - 1, 2**20, 2**20 + 1, 10**12 + 7):
        words = shlex.split(shell_text(PlanError("too small", needed_memory=needed)))
        assert needed <= parse_size(words[-3]) < needed + 2**20


def test_who_divides_the_budget_names_the_whole_of_it() -> None:
    with pytest.raises(PlanError, match=r"; set memory=3_000 or more$") as caught, part_of_memory(3):
        raise PlanError("a row is long", needed_memory=1000)
    assert caught.value.needed_memory == 3000
    assert caught.value.remedy.options == {"memory": 3000}
    with pytest.raises(PlanError, match="no classes"), part_of_memory(3):
        raise PlanError("no classes")


def test_a_remedy_that_the_command_lacks_is_left_out() -> None:
    message = Message("line 3 is odd", Remedy("{} skips it", Option("on_error", "skip")))
    assert shell_text(message, ["memory", "on_error"]) == "line 3 is odd; --on-error skip skips it"
    assert shell_text(message, ["memory"]) == "line 3 is odd"
    call = Message("no store", Remedy("{} makes one", Call("convert", None, (Option("like", "run"),))))
    assert shell_text(call, []) == "no store; `streamsvm convert --like run` makes one"


def test_messages_and_errors_survive_copies() -> None:
    for copied in (copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        error = copied(PlanError("too small", needed_memory=2**20))
        assert error.needed_memory == 2**20
        assert shell_text(error) == "too small; set --memory 1M or more"
        assert shell_text(copied(error.message)) == shell_text(error)


def test_records_for_machines_are_worded_for_a_shell_at_any_depth() -> None:
    message = Message("slow", Remedy("{} is faster", Option("memory", 2**30)))
    record = {"warnings": [message], "plan": {"warning": message, "rows": 3}, "C": None}
    words = "slow; --memory 1024M is faster"
    assert shell_value(record) == {"warnings": [words], "plan": {"warning": words, "rows": 3}, "C": None}
    assert json.loads(json.dumps(record))["plan"]["warning"] == "slow; memory=1_073_741_824 is faster"


def test_every_exception_takes_a_remedy() -> None:
    remedy = Remedy("{}", Option("force", True))
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert len(kinds) >= 10
    for kind in kinds:
        assert str(kind("a problem", remedy=remedy)) == "a problem; force=True"
        assert str(kind("a problem")) == "a problem"
