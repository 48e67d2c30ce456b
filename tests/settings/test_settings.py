"""Settings as callers write them: numbers of any library, sizes as text; and which are refused."""

from __future__ import annotations

import dataclasses
import fractions
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store
from streamsvm_converters import TextSource, convert

from streamsvm import evaluate, fit, online, predict
from streamsvm.base.text import check_classes, format_size, parse_size, printable
from streamsvm.errors import SettingsError
from streamsvm.settings.fit import Interval, Settings
from streamsvm.settings.online import OnlineSettings


def _as_numpy(value: Any) -> Any:
    """The same value of NumPy's types."""
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, str: np.str_}
    return kinds[type(value)](value) if type(value) in kinds else value


@pytest.mark.parametrize("settings", [Settings, OnlineSettings])
def test_every_setting_takes_the_types_of_numpy(settings: type) -> None:
    """As they come out of a grid, an array or a table."""
    values = {"valid": "a.zarr", "class_weight": "balanced", "sample_weight": "w",
              "label": "cell", "layer": "raw", "transform": "l2", "tol": 0.5, "gap": "pass", "block_rows": 7,
              "slice_rows": 5, "keep_duals": True, "tree": "t"}  # fmt: skip
    names = {field.name for field in dataclasses.fields(settings)}
    given = dataclasses.asdict(settings(**{name: each for name, each in values.items() if name in names}))
    numpy = {name: _as_numpy(value) for name, value in given.items()}
    assert dataclasses.asdict(settings(**numpy)) == given
    assert settings(**json.loads(json.dumps(vars(settings(**numpy))))) == settings(**given)
    assert Settings(loss=np.str_("wws"), smooth=np.float64(0.25)).smooth == 0.25  # of few losses
    for whole, real in (np.uint32(2), np.float32(2)), (np.array(2)[()], fractions.Fraction(2)):
        given = Settings(passes=whole, C=real)
        assert json.dumps(vars(given)) == json.dumps(vars(Settings(passes=2, C=2.0)))


def test_all_calls_take_the_types_of_numpy_and_sizes_as_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a 1:1 3:2\nb 2:1\na 1:2\nb 2:3\n")
    plain = {"index_base": 1, "n_features": 5, "dtype": "float64", "shuffle": False, "seed": 3, "threads": 1,
             "memory": 2**28, "chunk_nnz": 4, "codec": "fast", "on_error": "fix"}  # fmt: skip
    numpy = {name: _as_numpy(value) for name, value in plain.items()}
    first, second = (
        convert(tmp_path / "text", tmp_path / name, **how).fingerprint
        for name, how in (("a.zarr", {**plain, "memory": "256M"}), ("b.zarr", numpy))
    )
    assert first == second
    run, stream = tmp_path / "run", TextSource([tmp_path / "text"], memory="10M")
    numpy = {"passes": np.int64(1), "checkpoint_every": np.float32(30)}
    assert fit(tmp_path / "b.zarr", out=run, memory="100M", **numpy).passes == 1
    how = {"memory": np.int64(2**27), "top_k": np.int32(1)}
    assert evaluate(run, tmp_path / "b.zarr", **how).n == 4
    assert predict(run, tmp_path / "b.zarr", threshold=np.float32(-1e9), **how).n == 4
    assert stream.record()["memory"] == 10 * 1024**2
    assert online(stream, out=tmp_path / "stream").rows == 4
    with pytest.raises(SettingsError, match="'much' is not a valid size"):
        convert([tmp_path / "text"], tmp_path / "c.h5", memory="much")


def test_memory_is_a_size_in_numbers_or_text() -> None:
    sizes: dict[Any, int] = {"2G": 2**31, " 1.5 gib ": 3 * 2**29, "500M": 500 * 2**20, "64kB": 2**16}
    for size, expected in [*sizes.items(), ("4096", 4096), (4096, 4096), (np.int32(4096), 4096)]:
        assert parse_size(size) == Settings(memory=size).memory == expected
    for size in ("", "2X", "G", "-1", "0", "1e9", "9" * 400, "9999999T", -1, 0, 2.5, None, True):
        with pytest.raises(SettingsError, match=re.escape(f"{size!r} is not a valid size")):
            parse_size(size)


def test_sizes_are_shown_in_a_readable_unit() -> None:
    shown = {0: "0 B", 999: "999 B", 123_456: "120.6 KiB", 2**31: "2 GiB", 1000 * 2**40: "1,000 TiB"}
    assert {n: format_size(n) for n in shown} == shown


def test_control_characters_are_refused_in_classes_and_shown_escaped() -> None:
    for letter in "\n\t\x1b\x7f\x85\u2028\u2029\u202e\u2066":
        with pytest.raises(SettingsError) as caught:
            check_classes(["good", f"B{letter}cell"], "here", SettingsError)
        escaped = repr(letter).strip("'")
        assert f"here: the name of class 'B{escaped}cell' contains a control character" in str(caught.value)
        assert printable(f"a{letter}b") == f"a{escaped}b"


def test_names_in_all_languages_are_accepted() -> None:
    names = ["naïve B", "T細胞", "κύτταρο", "خلية", "🧫", "a  b", "\u200d", "\u00ad"]
    check_classes(names, "here", SettingsError)
    assert [printable(name) for name in names] == names
    assert printable("\udcff") == "\\udcff"  # of a file name that is not UTF-8


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
    ("solver", ["magic", "bcpl"], "newton or sorted or shark for the loss ww", {}),
    ("inner_passes", [-1], "auto or a whole number", {}),
    ("inner_passes", [2], "0 or auto with the loss llw", {"loss": "llw"}),
    ("dtype", ["float16"], "one of float32, float64", {}),
    ("gap", ["often"], "one of pass, end, none", {}),
    ("gap", ["end"], "pass if tol is set", {"tol": 0.1}),
    ("passes", [0, 2.0], WHOLE.format(1), {}),
    ("C", [0.0, -1.0, INF, NAN, 10**400, "1"], f"auto or {POSITIVE}", {}),
    ("seed", [-1, 2**63], WHOLE.format(0), {}),
    ("tol", [-1e-3, NAN], "a number of at least 0", {}),
    ("block_rows", [0], WHOLE.format(1), {}),
    ("keep_duals", [False], "on with more than one pass", {"passes": 2}),
    ("keep_duals", [1], "True or False", {}),
    ("average", ["auto"], "True or False", {}),
    ("label", [5], "text", {}),
    ("smooth", [0.5], "left out with the loss llw and the solver newton", {"loss": "llw"}),
    ("smooth", [0.0], POSITIVE, {"loss": "wws"}),
    ("top", [2], "left out with the loss cs", {"loss": "cs"}),
    ("top", [0], WHOLE.format(1), {"loss": "top-m"}),
    ("temperature", [1.0], "left out with the loss cs and the solver newton", {"loss": "cs"}),
    ("temperature", [-1.0], POSITIVE, {"loss": "chain", "solver": "bcpl"}),
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


def test_by_default_commits_take_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    interval = Interval()
    for cost, wanted in ((0.0, 10.0), (0.1, 10.0), (3.0, 60.0)):
        interval.restart(cost)
        begin, now = now, now + wanted - 1
        assert not interval.due(1000)
        now = begin + wanted
        assert interval.due(0)
    asked = Interval("5s")
    asked.restart(3.0)
    now += 5
    assert asked.due(0)
