"""Outputs are made under hidden names: the next process removes what a killed one left, and no others."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import save_weights

from streamsvm import load_model, predict
from streamsvm.base import durable
from streamsvm.errors import ModelError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed(work: Callable[[], object]) -> None:
    """Do `work` in a process that ends in the midst of it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def write_and_die(path: Path) -> None:
    with durable.replacing(path) as aside:
        aside.write_text("a part")
        os._exit(7)


def save(folder: Path, scale: float = 1.0) -> Path:
    weights = (scale * np.arange(6)).reshape(3, 2).astype(np.float32)
    record = {"classes": ["a", "b"], "dtype": "float32", "n_features": 3}
    save_weights(folder, weights, {**record, "index_base": 1, "loss": "ww", "transforms": []})
    return folder


def test_the_next_process_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    others = [".p.csv.tmp", ".p.csv.swp", ".p.csv.0123456z.tmp", ".q.csv.01234567.tmp"]
    for other in others:
        (tmp_path / other).write_text("of the user")
    killed(lambda: write_and_die(path))
    assert len(names(tmp_path)) == len(others) + 1
    with durable.replacing(path) as aside:
        aside.write_text("whole")
    assert path.read_text() == "whole"
    assert names(tmp_path) == sorted([*others, "p.csv"])


def test_what_a_living_process_makes_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    with durable.replacing(path) as first:
        first.write_text("first")
        with durable.replacing(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
        assert first.read_text() == "first"
    assert path.read_text() == "first"
    assert names(tmp_path) == ["p.csv"]


def test_where_there_are_no_locks_nothing_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*words: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    killed(lambda: write_and_die(tmp_path / "p.csv"))
    monkeypatch.setattr(fcntl, "flock", refused)
    with durable.replacing(tmp_path / "p.csv") as aside:
        aside.write_text("whole")
    assert (tmp_path / "p.csv").read_text() == "whole"
    assert len(names(tmp_path)) == 2


@pytest.mark.parametrize("at", range(4))
def test_a_model_that_was_being_replaced_is_put_back(tmp_path: Path, at: int) -> None:
    """The process dies before it renames the old model, the new one, or deletes the old one."""
    old, new = load_model(save(tmp_path / "old")), load_model(save(tmp_path / "new", 2.0))
    old.save(tmp_path / "m")
    moments = iter(range(at))

    def die() -> None:
        for name in ("rename", "rmdir"):
            real = getattr(os, name)
            setattr(
                os,
                name,
                lambda *a, real=real, **k: os._exit(7) if next(moments, None) is None else real(*a, **k),
            )
        new.save(tmp_path / "m")

    killed(die)
    with durable.temporary(tmp_path / "m", folder=True):
        coef = load_model(tmp_path / "m").coef_
        assert any(np.array_equal(coef, each.coef_) for each in (old, new))
    assert names(tmp_path) == ["m", "new", "old"]


def test_files_are_replaced_only_if_asked(tmp_path: Path) -> None:
    model, X, out = load_model(save(tmp_path / "model")), np.eye(3), tmp_path / "p.csv"
    (tmp_path / "link").symlink_to("nowhere")
    out.write_text("precious")
    for path in (out, tmp_path / "link"):
        with pytest.raises(ModelError, match="already exists"):
            predict(model, X, path)
    assert out.read_text() == "precious"
    predict(model, X, out, force=True)
    with pytest.raises(ModelError, match=f"{tmp_path} is a folder; specify a file name"):
        predict(model, X, tmp_path, force=True)
