"""What is easily given in the wrong place, or in bad shape: one line that says what to give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import make_problem, make_store

import streamsvm
from streamsvm.errors import StreamsvmError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wrong")
    X, labels = make_problem(30, 6, 3)
    make_store(path / "a.zarr", X, labels)
    streamsvm.fit(path / "a.zarr", out=path / "run", passes=1)
    return path


def test_a_store_that_is_open_is_taken_like_its_path(folder: Path) -> None:
    model = streamsvm.load_model(folder / "run")
    with streamsvm.open_store(folder / "a.zarr") as store:
        assert streamsvm.evaluate(model, store) == streamsvm.evaluate(folder / "run", str(folder / "a.zarr"))
        of_path = streamsvm.predict(model, folder / "a.zarr").labels
        assert np.array_equal(streamsvm.predict(folder / "run", store).labels, of_path)


def test_a_wrong_argument_is_named_with_what_to_give(folder: Path) -> None:
    path, model, ones = folder / "a.zarr", streamsvm.load_model(folder / "run"), np.ones((2, 6))
    with streamsvm.open_store(path) as store:
        calls: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
            (model.predict, (str(path),), r"X is '.*, which is not a matrix; .*streamsvm\.fit"),
            (model.decision_function, (path,), r"X is PosixPath\(.*, which is not a matrix"),
            (streamsvm.fit, (store,), r"X is ContainerStore\(.*, which is not a matrix; .*streamsvm\.fit"),
            (streamsvm.evaluate, (model, None), "X is None, which is not a matrix"),
            (streamsvm.evaluate, (model, [path, path]), "X is .*, which is not a matrix; .*with a path"),
            (streamsvm.evaluate, (store, model), "must be a Model or the path of a model, not Container"),
            (streamsvm.evaluate, (model, ones), "y is missing"),
        ]
        for call, given, message in calls:
            options = {"out": folder / "x"} if call is streamsvm.fit else {}
            with pytest.raises(StreamsvmError, match=message) as caught:
                call(*given, **options)
            assert "\n" not in str(caught.value)
