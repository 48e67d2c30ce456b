"""Which settings and intervals between commits are refused, and what the defaults stand for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store

from streamsvm import fit
from streamsvm.errors import SettingsError
from streamsvm.settings.fit import Interval, Settings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.h5", *make_problem(30, 5, 3))


WHOLE, POSITIVE = "a whole number in [{}, ", "positive and finite"
INF, NAN = float("inf"), float("nan")
REFUSED: list[tuple[str, list[Any], str, dict[str, Any]]] = [  # setting, values, what is allowed, with others
    ("loss", ["hinge"], "one of ww, ww2", {}),
    ("margin", [0.7], "1.0 or 0.5 for the loss ww", {}),
    ("margin", [0.5], "1.0 for the loss cs", {"loss": "cs"}),
    ("margin", [0.5], "1.0 for the loss logistic", {"loss": "logistic"}),
    ("solver", ["magic"], "one of newton, sorted", {}),
    ("solver", ["bcpl"], "newton or sorted or shark for the loss ww", {}),
    ("inner_passes", [-1], "auto or a whole number", {}),
    ("inner_passes", [2], "0 or auto with the loss llw", {"loss": "llw"}),
    ("dtype", ["float16"], "one of float32, float64", {}),
    ("gap", ["often"], "one of pass, end, none", {}),
    ("gap", ["end"], "pass with a tolerance", {"tol": 0.1}),
    ("passes", [0, 2.0], WHOLE.format(1), {}),
    ("C", [0.0, -1.0, INF, NAN, 10**400, "1"], f"auto or {POSITIVE}", {}),
    ("seed", [-1, 2**63], WHOLE.format(0), {}),
    ("memory", [0, 10**400], WHOLE.format(1), {}),
    ("tol", [-1e-3, NAN], "a number, 0 or more", {}),
    ("block_rows", [0], WHOLE.format(1), {}),
    ("keep_duals", [False], "on with more than one pass", {"passes": 2}),
    ("keep_duals", [1], "True or False", {}),
    ("average", ["yes"], "auto or True or False", {}),
    ("label", [5], "text", {}),
    ("smooth", [0.5], "left out with the loss llw and the solver newton", {"loss": "llw"}),
    ("smooth", [0.0], POSITIVE, {"loss": "wws"}),
    ("top", [2], "left out with the loss cs", {"loss": "cs"}),
    ("top", [0], WHOLE.format(1), {"loss": "top-m"}),
    ("temperature", [1.0], "left out with the loss cs and the solver newton", {"loss": "cs"}),
    ("temperature", [-1.0], POSITIVE, {"loss": "cs", "solver": "bcpl"}),
    ("solver_tol", [0.1], "left out with the loss ww and the solver sorted", {"solver": "sorted"}),
    ("first_C", [0.5], "left out with the loss llw", {"loss": "llw", "C": 1.0}),
    ("first_C", [0.5], "left out with keep_duals off", {"C": 1.0, "passes": 1}),
    ("first_C", [2.0], "at most C, which is 1", {"C": 1.0}),
    ("first_C", [0.0], f"auto or {POSITIVE}", {}),
]
NO_INTERVALS: list[Any] = [
    *("", "0", "0s", "-1s", "5x", "s", "1e3s", "nan", "inf", "1 2", "8 rows"),
    *(0, 0.0, -3, True, float("nan"), float("inf")),
]


def test_impossible_settings_are_refused_before_a_run_is_created(tmp_path: Path, store: Path) -> None:
    for setting, values, allowed, others in REFUSED:
        for value in values:
            with pytest.raises(SettingsError, match=re.escape(f"{setting} must be {allowed}")) as refused:
                fit(store, out=tmp_path / "run", **{setting: value}, **others)
            assert refused.value.setting == setting
    for every in NO_INTERVALS:
        with pytest.raises(SettingsError, match="cannot checkpoint every"):
            fit(store, out=tmp_path / "run", checkpoint_every=every)
    assert not (tmp_path / "run").exists()


def test_defaults_depend_on_the_other_settings() -> None:
    assert (Settings().margin, Settings().solver, Settings().keep_duals) == (1.0, "newton", True)
    assert (Settings(loss="cs").solver, Settings(passes=1).keep_duals) == ("newton", False)
    assert all(Settings(passes=passes).average for passes in (1, 5, 6, 100))
    assert (Settings().gap, Settings(tol=0.1).gap, Settings().C) == ("end", "pass", "auto")


def test_intervals() -> None:
    times = [("0.5s", 0.5), ("60s", 60), ("5m", 300), ("1h", 3600), ("250ms", 0.25), (2.5, 2.5), (3, 3)]
    for every, seconds in [*times, (np.int64(3), 3), (np.float32(0.5), 0.5)]:
        assert (Interval(every).seconds, Interval(every).blocks) == (seconds, None)
    for every, blocks in ("8", 8), ("8 blocks", 8), ("1 block", 1):
        interval = Interval(every)
        assert (interval.seconds, interval.blocks) == (None, blocks)
        assert [interval.due(1) for _ in range(blocks)] == [False] * (blocks - 1) + [True]
