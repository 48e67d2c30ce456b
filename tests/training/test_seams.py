"""A new transform, source or loss is one class, and one line of a registry: shown by throw-away ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from cases import few
from helpers import make_store
from online_replay import OnlineReplay
from row_stream import D, K, N, RowStream, late_problem
from small_problem import ONLINE, PARAMETERS, of_loss

from streamsvm import load_model, online, open_store
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError, SettingsError
from streamsvm.inputs.rows import RowsToScore
from streamsvm.losses import ROW_LOSSES as LOSSES
from streamsvm.losses import get_loss
from streamsvm.run.directory import RunDir, claimed
from streamsvm.run.files import RunFiles
from streamsvm.run.growing_weights import GrowingWeights
from streamsvm.settings.fit import Interval, Settings
from streamsvm.settings.online import OnlineSettings
from streamsvm.training.learner import Learner
from streamsvm.training.online import Online, new_position
from streamsvm.training.sources import StreamSource
from streamsvm.training.spec import Spec
from streamsvm.training.trainer import Callbacks
from streamsvm.transforms import TRANSFORMS, Transform, records_of, transforms_from
from streamsvm.transforms.hashing import Hashing

F64 = np.dtype(np.float64)


# -- a transform -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Squares(Transform):
    """The squares of all values, times a factor, and a feature that is always 1."""

    name: ClassVar = "squares"
    takes_any_feature: ClassVar = False

    width: int
    factor: float

    def __call__(self, rows: Rows) -> Rows:
        X = sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.n_rows, self.width))
        ones = np.ones((rows.n_rows, 1), rows.data.dtype)
        new = sp.csr_array(sp.hstack([self.factor * X.multiply(X), ones], format="csr"))
        norm2 = np.asarray(new.multiply(new).sum(axis=1)).ravel()
        indices, indptr = new.indices.astype(rows.indices.dtype), new.indptr.astype(np.int64)
        return rows._replace(data=new.data, indices=indices, indptr=indptr, norm2=norm2)

    def n_features(self, n_features: int | None) -> int | None:
        return self.width + 1

    def record(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        return cls(**record)


def learn(stream: RowStream, out: Path, transforms: Sequence[Transform]) -> None:
    """An online pass with transforms that settings do not know."""
    run, asked = RunDir(out), OnlineSettings(C=0.3, dtype="float64")
    settings = Settings(C=0.3, dtype="float64", passes=1, inner_passes=0, gap="none")
    source = StreamSource(stream, F64, asked.C, transforms)
    with claimed(run, force=False):
        storage = GrowingWeights((0, 0), F64, (run.weights, run.dirty, run.average_delta))
        storage.grow(source.n_features or 0, 0)
        spec = Spec(settings, 0, storage.n_features, np.zeros(0, np.int64))
        files = RunFiles(run, spec.dual_format(), Interval("1h"))
        learner = Learner(spec, storage)
        Online(source, asked, settings, files, learner, new_position(None), Callbacks()).run()


def test_a_new_transform_is_applied_in_training_and_by_the_loaded_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(TRANSFORMS, Squares.name, (__name__, "Squares"))
    X, labels = late_problem()
    stream = RowStream(X, labels, (40, 90))
    stream.index_base = 1  # as the store below
    learn(stream, tmp_path / "run", [Squares(D, 0.5)])
    dense = X.toarray().astype(float)
    transformed = np.hstack([0.5 * dense**2, np.ones((N, 1))])
    expected = OnlineReplay(transformed, labels, 0.3)
    W = expected.average[:, np.argsort(expected.names)]

    model = load_model(tmp_path / "run")
    assert model.transforms == [Squares(D, 0.5)]
    assert model.record["transforms"] == [{"name": "squares", "width": D, "factor": 0.5}]
    np.testing.assert_allclose(model.coef_.T, W, atol=1e-9)
    classes = list(model.classes_)
    store = make_store(tmp_path / "a.h5", X, np.array([classes.index(label) for label in labels]))
    with open_store(store) as opened:
        batches = [rows for rows, _ in RowsToScore(model, labelled=False).read(opened)]
    scores = np.vstack([part.copy() for rows in batches for _, part in model.scores(rows)])
    np.testing.assert_allclose(scores, transformed @ W, atol=1e-9)


def test_a_model_with_a_transform_that_is_not_registered_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(TRANSFORMS, Squares.name, (__name__, "Squares"))
        learn(RowStream(*late_problem()), tmp_path / "run", [Squares(D, 0.5)])
    with pytest.raises(ModelError, match=r"model\.json"):
        load_model(tmp_path / "run")


def test_transforms_are_applied_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TRANSFORMS, Squares.name, (__name__, "Squares"))
    X, labels = late_problem()
    transforms = [Squares(D, 0.5), Hashing(4, 1)]
    learn(RowStream(X, labels), tmp_path / "run", transforms)
    assert load_model(tmp_path / "run").transforms == transforms
    assert transforms_from(records_of(transforms)) == transforms
    dense = np.hstack([0.5 * X.toarray().astype(float) ** 2, np.ones((N, 1))])
    columns = Hashing(4, 1)(as_rows_of_identity(D + 1))
    matrix = sp.csr_array((columns.data, columns.indices, columns.indptr), shape=(D + 1, 16)).toarray()
    expected = OnlineReplay(dense @ matrix, labels, 0.3)
    W = expected.average[:, np.argsort(expected.names)]
    np.testing.assert_allclose(load_model(tmp_path / "run").coef_.T, W, atol=1e-9)


def as_rows_of_identity(n: int) -> Rows:
    """Row i has the value 1 at feature i: hashed, they are the matrix of the hash."""
    one = np.arange(n, dtype=np.int64)
    return Rows(np.ones(n), one, np.arange(n + 1), np.zeros(n, np.int32), np.ones(n))


# -- a source --------------------------------------------------------------------------------------


class Waves:
    """A stream that computes its rows: in row t, feature j is cos(t j), and the class is of t's residue."""

    resumable = True
    index_base = 0
    feature_names = None
    dense_rows = False
    n_features: int | None = D

    def __init__(self, n: int) -> None:
        self.n = n
        self.classes: list[str] | None = [f"r{c}" for c in range(K)]

    @staticmethod
    def matrix(times: np.ndarray) -> np.ndarray:
        return np.cos(np.outer(times, np.arange(D)))

    def batches(
        self, place: dict[str, Any] | None, classes: Sequence[str]
    ) -> Iterator[tuple[Rows, list[str], dict[str, Any]]]:
        for begin in range(place["row"] if place else 0, self.n, 17):
            times = np.arange(begin, min(begin + 17, self.n))
            X = self.matrix(times)
            indices, indptr = np.tile(np.arange(D), len(X)), D * np.arange(len(X) + 1)
            labels = (times % K).astype(np.int32)
            yield (
                Rows(X.ravel(), indices, indptr, labels, (X**2).sum(axis=1)),
                [],
                {"row": int(times[-1]) + 1},
            )

    def record(self) -> dict[str, Any]:
        return {"n": self.n}

    def sources(self, place: dict[str, Any] | None) -> list[dict[str, Any]]:
        return []

    def summary(self, place: dict[str, Any] | None) -> dict[str, Any]:
        return {}

    def in_order(self, classes: Sequence[str]) -> np.ndarray:
        return np.arange(len(classes))

    def label_dtype(self, classes: Sequence[str]) -> str:
        return "str"


@pytest.mark.parametrize("loss", few(ONLINE, "ww", "cs", "ovr2"))
def test_an_online_pass_learns_from_a_new_stream_with_every_loss(tmp_path: Path, loss: str) -> None:
    n = 120
    result = online(Waves(n), out=tmp_path / "run", C=0.2, dtype="float64", **of_loss(loss))
    labels = [f"r{t % K}" for t in range(n)]
    expected = OnlineReplay(
        Waves.matrix(np.arange(n)),
        labels,
        0.2,
        loss,
        classes=[f"r{c}" for c in range(K)],
        **PARAMETERS.get(loss, {}),
    )
    model = load_model(tmp_path / "run")
    assert list(model.classes_) == expected.names
    np.testing.assert_allclose(model.coef_.T, expected.average, atol=1e-9)
    assert result.rows == n


# -- a loss ----------------------------------------------------------------------------------------


def test_losses_are_found_by_their_names() -> None:
    for name, loss in LOSSES.items():
        assert get_loss(name) is loss
        assert Settings(loss=name).solver == loss.solvers[0]
        assert Settings(loss=name).margin == loss.margins[0]
        assert name in reference.LOSSES
    with pytest.raises(SettingsError, match="unknown loss 'none'"):
        get_loss("none")
