"""Which settings and intervals between commits are refused, and what the defaults stand for."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("options", "setting", "allowed"),
    [
        ({"loss": "hinge"}, "loss", "one of ww, ww2"),
        ({"margin": 0.7}, "margin", "1.0 or 0.5 for the loss ww"),
        ({"loss": "cs", "margin": 0.5}, "margin", "1.0 for the loss cs"),
        ({"solver": "magic"}, "solver", "one of newton, sorted"),
        ({"loss": "cs", "solver": "magic"}, "solver", "one of newton, sorted"),
        ({"inner_passes": -1}, "inner_passes", "auto or a whole number"),
        ({"dtype": "float16"}, "dtype", "one of float32, float64"),
        ({"gap": "often"}, "gap", "one of pass, end, none"),
        ({"passes": 0}, "passes", "a whole number in [1, "),
        ({"passes": 2.0}, "passes", "a whole number in [1, "),
        ({"C": 0.0}, "C", "auto or positive and finite"),
        ({"C": -1.0}, "C", "auto or positive and finite"),
        ({"C": float("inf")}, "C", "auto or positive and finite"),
        ({"C": float("nan")}, "C", "auto or positive and finite"),
        ({"C": 10**400}, "C", "auto or positive and finite"),
        ({"C": "1"}, "C", "auto or positive and finite"),
        ({"seed": -1}, "seed", "a whole number in [0, "),
        ({"seed": 2**63}, "seed", "a whole number in [0, "),
        ({"memory": 0}, "memory", "a whole number in [1, "),
        ({"memory": 10**400}, "memory", "a whole number in [1, "),
        ({"tol": -1e-3}, "tol", "a number, 0 or more"),
        ({"tol": float("nan")}, "tol", "a number, 0 or more"),
        ({"tol": 0.1, "gap": "end"}, "gap", "pass with a tolerance"),
        ({"block_rows": 0}, "block_rows", "a whole number in [1, "),
        ({"passes": 2, "keep_duals": False}, "keep_duals", "on with more than one pass"),
        ({"average": "yes"}, "average", "auto or True or False"),
        ({"keep_duals": 1}, "keep_duals", "True or False"),
        ({"label": 5}, "label", "text"),
        ({"loss": "llw", "smooth": 0.5}, "smooth", "left out with the loss llw and the solver newton"),
        ({"loss": "wws", "smooth": 0.0}, "smooth", "positive and finite"),
        ({"loss": "cs", "top": 2}, "top", "left out with the loss cs"),
        ({"loss": "top-m", "top": 0}, "top", "a whole number in [1, "),
        (
            {"loss": "cs", "temperature": 1.0},
            "temperature",
            "left out with the loss cs and the solver newton",
        ),
        ({"loss": "cs", "solver": "bcpl", "temperature": -1.0}, "temperature", "positive and finite"),
        (
            {"solver": "sorted", "solver_tol": 0.1},
            "solver_tol",
            "left out with the loss ww and the solver sorted",
        ),
        ({"solver": "bcpl"}, "solver", "newton or sorted or shark for the loss ww"),
        ({"loss": "llw", "C": 1.0, "first_C": 0.5}, "first_C", "left out with the loss llw"),
        ({"C": 1.0, "first_C": 0.5, "passes": 1}, "first_C", "left out with keep_duals off"),
        ({"C": 1.0, "first_C": 2.0}, "first_C", "at most C, which is 1"),
        ({"first_C": 0.0}, "first_C", "auto or positive and finite"),
        ({"loss": "llw", "inner_passes": 2}, "inner_passes", "0 or auto with the loss llw"),
        ({"loss": "logistic", "margin": 0.5}, "margin", "1.0 for the loss logistic"),
    ],
)
def test_impossible_settings_are_refused_before_a_run_is_created(
    tmp_path: Path, store: Path, options: dict[str, Any], setting: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        fit(store, out=tmp_path / "run", **options)
    assert refused.value.setting == setting
    assert f"{setting} must be {allowed}" in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_defaults_depend_on_the_other_settings() -> None:
    assert (Settings().margin, Settings().solver, Settings().keep_duals) == (1.0, "newton", True)
    assert (Settings(loss="cs").solver, Settings(passes=1).keep_duals) == ("newton", False)
    assert all(Settings(passes=passes).average for passes in (1, 5, 6, 100))
    assert (Settings().gap, Settings(tol=0.1).gap, Settings().C) == ("end", "pass", "auto")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0s",
        "-1s",
        "5x",
        "s",
        "1e3s",
        "nan",
        "inf",
        "1 2",
        "8 rows",
        0,
        0.0,
        -3,
        True,
        float("nan"),
        float("inf"),
    ],
)
def test_impossible_intervals_are_refused(text: Any) -> None:
    with pytest.raises(SettingsError, match="cannot checkpoint every"):
        Interval(text)


@pytest.mark.parametrize(
    ("text", "seconds", "blocks"),
    [
        ("0.5s", 0.5, None),
        ("60s", 60, None),
        ("5m", 300, None),
        ("1h", 3600, None),
        ("250ms", 0.25, None),
        (2.5, 2.5, None),
        ("8", None, 8),
        ("8 blocks", None, 8),
        ("1 block", None, 1),
        (3, 3, None),
        (np.int64(3), 3, None),
        (np.float32(0.5), 0.5, None),
    ],
)
def test_intervals(text: Any, seconds: float | None, blocks: int | None) -> None:
    interval = Interval(text)
    assert (interval.seconds, interval.blocks) == (seconds, blocks)
    if blocks:
        assert [interval.due(1) for _ in range(blocks)] == [False] * (blocks - 1) + [True]
