"""Small problems as stores, for tests of the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import streamsvm
from streamsvm.base import format
from streamsvm.base.label_values import class_name
from streamsvm.data import memory_plan
from streamsvm.data.memory_plan import Plan
from streamsvm.data.rows import Rows, with_matrix
from streamsvm.data.statistics import Statistics, StatisticsBuilder
from streamsvm.kernels.duals import OldDuals
from streamsvm.model.coefficients import Coefficients
from streamsvm.model.model import Model
from streamsvm.model.results import FitResult
from streamsvm.model.serialization import save_model
from streamsvm.settings.checks import GIVEN
from streamsvm.settings.fit import Interval, Settings
from streamsvm.store import Contents, StoreWriter, layout
from streamsvm.training import create, fit_plan
from streamsvm.training.create import fit_store, open_matrix
from streamsvm.training.train import train
from streamsvm.training.trainer import Callbacks
from streamsvm.training.training import Execution

FEATURES = Path(__file__).with_name("features.txt")  # numbers of eleven features, for select=FILE
if TYPE_CHECKING:
    from streamsvm_converters.kinds.libsvm import LibsvmReader


@dataclasses.dataclass(frozen=True)
class MemoryPolicy:
    """Constants of memory plans, and which plans a fit tries first."""

    dual_share: float = memory_plan.DUAL_SHARE
    block_work: int = memory_plan.BLOCK_WORK
    read_bytes: int = memory_plan.READ_BYTES
    reads_of_room: int = memory_plan.READS_OF_ROOM
    first_bytes: int = memory_plan.FIRST_BYTES
    many_classes: int = memory_plan.MANY_CLASSES
    common_dual_classes: int = memory_plan.COMMON_DUAL_CLASSES
    prefer: Callable[[Plan], bool] | None = None

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for field in dataclasses.fields(self):
                if field.name != "prefer":
                    patch.setattr(memory_plan, field.name.upper(), getattr(self, field.name))
            if self.prefer is not None:
                for module in (fit_plan, create):
                    patch.setattr(module, "plan_fit", self._plan_fit)
            yield

    def _plan_fit(self, *args: Any, **options: Any) -> Any:
        def choices(*args: Any, **options: Any) -> list[Plan]:
            plans = _choices(*args, **options)
            preferred = list(filter(self.prefer, plans))
            return [*preferred, *plans, *preferred[-1:]]  # the last one is tried whatever the budget

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fit_plan, "choices", choices)
            return _plan_fit(*args, **options)


_choices, _plan_fit = fit_plan.choices, fit_plan.plan_fit
IN_FILES = MemoryPolicy(prefer=lambda plan: not plan.weights_in_memory)


def plain_fit(data: Any, *rest: Any, **options: Any) -> Any:
    """`streamsvm.fit`, but without an intercept by default, as references have none."""
    return streamsvm.fit(data, *rest, **{"transform": "none", **options})


def plain_online(data: Any, **options: Any) -> Any:
    """`streamsvm.online`, but without an intercept by default."""
    return streamsvm.online(data, **{"transform": "none", **options})


def fit_with(
    policy: MemoryPolicy,
    store: str | Path,
    *,
    out: str | Path,
    checkpoint_every: str | float = "60s",
    force: bool = False,
    **options: Any,
) -> FitResult:
    """`streamsvm.fit` on a store, with a memory policy, and with the settings that it does not show."""
    callbacks = Callbacks.of(*(options.pop(name, None) for name in ("report", "progress", "stop")))
    how = Execution(callbacks, Interval(checkpoint_every))
    settings = Settings(**{"transform": "none", **options})
    with policy.in_use():
        return fit_store([store], out, settings, how, force=force)


def fit_path(X: Any, y: Any, *, sample_weight: Any = None, **settings: Any) -> Model:
    """`plain_fit` of a matrix with the C of each pass, by the setting `C_factors`, as a search has it."""
    chosen, given = Settings(**{"transform": "none", **settings}), {"sample_weight": sample_weight}
    if sample_weight is not None:
        chosen = dataclasses.replace(chosen, sample_weight=GIVEN)
    model = train(open_matrix((X, y, None), chosen, Execution(), given), Execution())[1]
    assert model is not None
    return model


def resume_with(policy: MemoryPolicy, run: str | Path, **options: Any) -> Any:
    """`streamsvm.resume` with a memory policy."""
    with policy.in_use():
        return streamsvm.resume(run, **options)


def plan_with(policy: MemoryPolicy, store: str | Path, **settings: Any) -> dict[str, Any]:
    """`streamsvm.plan` of a store, with a memory policy."""
    with policy.in_use():
        return streamsvm.plan(store, **{"transform": "none", **settings})


def save_weights(
    folder: Path,
    weights: np.ndarray,
    record: dict[str, Any],
    *,
    columns: np.ndarray | None = None,
    names: Sequence[str] | None = None,
    costs: np.ndarray | None = None,
    **average: Any,
) -> None:
    """Save a model of weights in memory, by default with the first column for the first class."""
    columns = np.arange(len(record["classes"])) if columns is None else columns
    save_model(folder, Coefficients(weights, columns, **average), record, names=names, costs=costs)


def reseal(folder: Path, entries: Mapping[str, Any] = MappingProxyType({}), **files: bytes) -> None:
    """Change files of a model and entries of its record, and make all checksums right again."""
    for name, content in files.items():
        (folder / f"{name.replace('_', '-')}.npy").write_bytes(content)
    path = folder / "model.json"
    sums = {each.name: zlib.crc32(each.read_bytes()) for each in folder.iterdir() if each != path}
    path.write_text(json.dumps(format.sealed({**json.loads(path.read_bytes()), "crc32": sums, **entries})))


def make_problem(
    n: int, d: int, k: int, *, seed: int = 0, density: float = 0.4, noise: float = 0.6, empty: int = 0
) -> tuple[sp.csr_array, np.ndarray]:
    """Sparse rows around k random centres, float32-exact values, and their class codes (all k occur).

    The first `empty` rows have no values.
    """
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=n - k)]).astype(np.int32)
    rng.shuffle(labels)
    centres = rng.normal(size=(k, d))
    X = (centres[labels] + noise * rng.normal(size=(n, d))) * (rng.random((n, d)) < density)
    X[:empty] = 0
    return sp.csr_array(np.round(X, 3).astype(np.float32)), labels


def held_out(labels: np.ndarray, part: int, parts: int) -> np.ndarray:
    """Return a mask of the rows of a part: every so many of those sorted by class and by SplitMix64."""
    keys = np.array([plain_mix(row + GAMMA) for row in range(len(labels))], np.uint64)
    return np.isin(np.arange(len(labels)), np.lexsort([keys, labels])[part - 1 :: parts])


def held_out_by(values: Sequence[Any], part: int, parts: int) -> np.ndarray:
    """Return a mask of the rows of a part, which has whole values in the order of a hash of their texts.

    A part ends at the value that is nearest to its share; each has a value, if there are as many.
    """
    texts = pd.Series(np.asarray(values)).astype(str)
    counts = texts.value_counts()
    digests = {text: hashlib.blake2b(text.encode(), digest_size=8).digest() for text in counts.index}
    order = sorted(counts.index, key=lambda text: int.from_bytes(digests[text], "little") >> 1)
    ends, cuts = np.cumsum([0, *counts[order]]), [0]
    for at in range(1, parts):
        nearest = int(np.argmin(abs(ends - len(texts) * at / parts)))  # of two that are as near the first
        last = len(order) - (parts - at if parts <= len(order) else 1)
        cuts.append(min(max(nearest, cuts[-1] + 1), last))
    return texts.isin(order[slice(*[*cuts, None][part - 1 : part + 1])]).to_numpy()


def make_store(
    path: Path,
    X: sp.csr_array,
    labels: np.ndarray,
    *,
    n_classes: int | None = None,
    dtype: str = "float64",
    shuffled: bool = True,
    chunk_nnz: int = 64,
    dense: bool = False,
) -> Path:
    """Write a problem as a store; the suffix of `path` decides the container."""
    n_classes = int(labels.max()) + 1 if n_classes is None else n_classes
    rows = as_rows(X, labels, dtype)
    if dense:
        rows = with_matrix(rows._replace(indices=None), X.toarray())
    meta = {"shuffle_seed": 0 if shuffled else None}
    return write_rows(
        path, rows, X.shape[1], n_classes, dtype=dtype, chunk_nnz=chunk_nnz, dense=dense, meta=meta
    )


def write_rows(
    path: Path,
    rows: Rows,
    n_features: int,
    classes: int | list[str],
    dtype: str = "float64",
    meta: dict[str, Any] | None = None,
    **options: Any,
) -> Path:
    """Write rows as a store; the suffix of `path` decides the container."""
    classes = [str(c) for c in range(classes)] if isinstance(classes, int) else classes
    present = {"cost": len(rows.cost), "qid": len(rows.qid), "label_codes": len(rows.label_indptr)}
    options = {"index_base": 1, "chunk_nnz": 64} | options
    contents = Contents(
        n=rows.n_rows, d=n_features, nnz=len(rows.data), n_classes=len(classes), dtype=dtype,
        columns=[layout.COLUMNS[name] for name in present if present[name]],
        n_labels=len(rows.label_codes), **options,
    )  # fmt: skip
    with StoreWriter(path, contents, classes, meta=meta or {"shuffle_seed": 0}) as writer:
        writer.append(rows, np.arange(rows.n_rows))
        writer.finish()
    return path


def read_rows(
    inputs: Path | Sequence[Path], *, classes: Sequence[Any], n_features: int | None, **options: Any
) -> LibsvmReader:
    """Read LIBSVM text with these classes, -1 for other labels, and without features beyond `n_features`."""
    from streamsvm_converters.kinds.libsvm import LibsvmReader
    from streamsvm_converters.kinds.options import ReadOptions

    known = [class_name(label) for label in classes]
    reading = ReadOptions(**{"unseen_label": "keep", **options})
    paths = [inputs] if isinstance(inputs, Path) else inputs
    return LibsvmReader(paths, reading, classes=known, known_features=n_features)


def as_rows(X: sp.csr_array, labels: np.ndarray, dtype: str = "float64") -> Rows:
    """The same rows in memory, as kernels take them."""
    return Rows(
        X.data.astype(dtype),
        X.indices.astype(np.int32),
        X.indptr.astype(np.int64),
        labels.astype(np.int32),
        np.asarray(X.astype(np.float64).multiply(X.astype(np.float64)).sum(axis=1)).ravel(),
    )


def gather(pieces: Iterable[Rows], n_rows: int, n_features: int, kind: Any = "moments") -> Statistics:
    """The statistics of rows that come in pieces."""
    builder = StatisticsBuilder(n_rows, n_features, kind)
    for rows in pieces:
        builder.add(rows.indptr, rows.data, rows.indices)
    return builder.result()


def dense_duals(old: OldDuals, n_classes: int) -> np.ndarray:
    """The duals of rows, shape (n_rows, n_classes)."""
    B = np.zeros((len(old.counts), n_classes))
    for i, (at, count) in enumerate(zip(old.at, old.counts, strict=True)):
        B[i, old.ids[at : at + count]] = old.values[at : at + count]
    return B


def automatic_c(X: Any) -> float:
    """Return one over the mean squared distance of rows that are not empty from their mean."""
    rows = (X.toarray() if sp.issparse(X) else np.asarray(X)).astype(np.float64)
    return 1 / rows[rows.any(axis=1)].var(axis=0, ddof=1).sum()


def text_lines(X: sp.csr_array, labels: Iterable[object], form: str = "") -> list[str]:
    """Lines of LIBSVM text, whose features count from 1, with values in the format `form`."""
    lines = []
    for label, begin, end in zip(labels, X.indptr[:-1], X.indptr[1:], strict=True):
        pairs = zip(X.indices[begin:end] + 1, X.data[begin:end], strict=True)
        lines.append(
            " ".join([str(label), *(f"{feature}:{value:{form}}" for feature, value in pairs)]) + "\n"
        )
    return lines


GAMMA = 0x9E3779B97F4A7C15  # of SplitMix64


def plain_mix(state: int) -> int:
    """The finaliser of SplitMix64 with Python's integers."""
    state %= 2**64
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)
