"""Help in a terminal of 80 columns, `python -m streamsvm`, and what shells complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import succeeds
from streamsvm_cli.commands import _SUMMARIES, built
from warm_process import run

from streamsvm.losses import LOSSES

ROOT = Path(__file__).parents[2]


def test_every_command_is_documented_and_its_help_names_all_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    documents = "\n".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    commands = succeeds("-h")
    for name, summary in _SUMMARIES.items():
        assert re.search(rf"^  {name} +{re.escape(summary)}$", commands, re.MULTILINE)
        assert re.search(rf"^\| `streamsvm {name}\b", documents, re.MULTILINE)
        options = {max(each.opts, key=len) for each in built(name).params if each.param_type_name == "option"}
        assert {"--quiet", "--json"} <= options
        for flag, described in (("-h", "Most used:|Options:"), ("--help", "Options:")):
            text = succeeds(name, flag)
            assert text.startswith("Usage: ")
            assert summary in text
            assert re.search(f"^(?:{described})$", text, re.MULTILINE)
            assert options <= set(re.findall(r"--[a-zA-Z][\w-]*", text))
            assert max(map(len, text.splitlines())) <= 80
            assert "\x1b" not in text  # without colours it is legible on dark and on light


def test_both_modules_are_the_command_line() -> None:
    for module in ("streamsvm", "streamsvm_cli.main"):
        program = f"import runpy; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
        code, out, err = run("fit", "--help", code=program, bare=True)
        assert (code, err) == (0, "")
        usage, _, options = out.partition("\n")
        assert usage.startswith("Usage: ")
        assert options.split() == succeeds("fit", "--help").partition("\n")[2].split()


def completed(words: str) -> list[str]:
    """What bash is given to complete the last of the words with."""
    at = len(words.split(" ")) - 1
    done = run(_STREAMSVM_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=at)
    assert done.err == ""
    return done.out.split()


def test_commands_options_and_losses_are_completed() -> None:
    assert completed("streamsvm ev") == ["evaluate"]
    assert "--resume-or-start" in completed("streamsvm fit --res")
    assert completed("streamsvm fit --loss ov") == [name for name in LOSSES if name.startswith("ov")]
