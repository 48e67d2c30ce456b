"""Which settings and intervals between commits are refused, and what the defaults stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store

from streamsvm import fit
from streamsvm.errors import SettingsError
from streamsvm.settings import Interval, Settings


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("store") / "a.h5", *make_problem(30, 5, 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "unknown loss 'hinge'; choose one of ww, cs"),
        ({"margin": 0.7}, r"margin must be for ww one of \(1.0, 0.5\), not 0.7"),
        ({"loss": "cs", "margin": 0.5}, "margin must be for cs"),
        ({"solver": "magic"}, r"solver must be .*'newton', 'sorted'.*, not 'magic'"),
        ({"loss": "cs", "solver": "magic"}, "solver must be for cs"),
        ({"inner_passes": -1}, "inner passes must be auto or a number, 0 or more, not -1"),
        ({"dtype": "float16"}, "dtype must be float32 or float64, not 'float16'"),
        ({"gap": "often"}, "gap must be pass, end or none"),
        ({"passes": 0}, "passes must be at least 1, not 0"),
        ({"C": 0.0}, "C must be auto, or positive and finite, not 0.0"),
        ({"C": -1.0}, "C must be auto, or positive"),
        ({"C": float("inf")}, "C must be auto, or positive and finite"),
        ({"C": float("nan")}, "C must be auto, or positive and finite"),
        ({"seed": -1}, "seed must be in"),
        ({"seed": 2**63}, "seed must be in"),
        ({"memory": 0}, "memory must be positive"),
        ({"tol": -1e-3}, "tol must be 0 or more"),
        ({"tol": float("nan")}, "tol must be 0 or more"),
        ({"tol": 0.1, "gap": "end"}, "tol needs the exact gap after each pass: gap must be pass, not end"),
        ({"block_rows": 0}, "block rows must be at least 1"),
        ({"passes": 2, "keep_duals": False}, "so they must be kept"),
        ({"passes": 2.0}, "passes must be at least 1, not 2.0"),
        ({"memory": 10**400}, "memory must be positive"),
        ({"C": 10**400}, "C must be auto, or positive and finite"),
        ({"C": "1"}, "C must be auto, or positive and finite"),
        ({"average": "yes"}, "average must be on or off"),
        ({"keep_duals": 1}, "keep duals must be on or off"),
        ({"label": 5}, "label must be the name of a column"),
    ],
)
def test_impossible_settings_are_refused_before_a_run_is_created(
    tmp_path: Path, store: Path, options: dict, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        fit(store, out=tmp_path / "run", **options)
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
