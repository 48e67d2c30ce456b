"""Compare the bytes of many small trainings by two versions of the program, which should be the same.

Each training is one set of options on generated data. Its coefficients and its duals, sorted by row and
class, are hashed. The gap and the accuracy show how far apart two trainings are. Run both versions on one
machine: processors with other vectors add up in another order.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import google_crc32c
import numpy as np
import scipy.sparse as sp
from common import start, write_json
from streamsvm_converters import TextSource, convert
from tqdm import tqdm
from typer import Argument, Option

import streamsvm
from streamsvm.data import memory_plan
from streamsvm.losses import LOSSES, ROW_LOSSES
from streamsvm.run.directory import RunDir
from streamsvm.run.duals import DualFile, DualFormat, PassDuals
from streamsvm.run.sums import FileSum
from streamsvm.training.spec import Spec

Trained = Callable[[Path], Any]  # trains into a folder that does not exist yet; returns a result or a model
N_FEATURES = 60
MAX_ROWS = 2**13  # more than any training has
DUAL_FORMAT = Spec.dual_format
SPLIT = {"rows": ("ww", "cs", "ovr", "logistic"), "classes": ("ww", "ovr", "llw")}
TRANSFORMS = (
    "l2", "bias", "idf,l2", "scale=std,bias", "scale=maxabs", "clip=0.5", "binarize,df=-0.5,l2",
    "hash=5,l2", "select={0}/features.txt,bias=2", "normalize=1e3,log1p,scale=std,clip=3",
    "scale=std,fourier=40",
)  # fmt: skip


def draw(n: int, k: int, seed: int) -> tuple[sp.csr_array, np.ndarray]:
    """Rows of positive values around the centres of k classes, a third of them zeros, and their classes."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(k), rng.integers(k, size=n - k)])
    rng.shuffle(labels)
    centres = np.random.default_rng(k).gamma(1.0, size=(k, N_FEATURES))
    X = centres[labels] * rng.gamma(2.0, 0.3, size=(n, N_FEATURES)) * (rng.random((n, N_FEATURES)) < 0.35)
    return sp.csr_array(np.round(X, 3)), labels


def write_text(path: Path, X: sp.csr_array, labels: list[str], groups: np.ndarray | None = None) -> Path:
    """Write rows as LIBSVM text."""
    with open(path, "w") as file:
        for i, label in enumerate(labels):
            span = slice(X.indptr[i], X.indptr[i + 1])
            values = (f"{j + 1}:{value:g}" for j, value in zip(X.indices[span], X.data[span], strict=True))
            qid = "" if groups is None else f" qid:{groups[i]}"
            file.write(f"{label}{qid} {' '.join(values)}\n")
    return path


def write_table(path: Path, X: sp.csr_array, labels: np.ndarray, features: range) -> Path:
    """Write some features of rows as a table with a header and a column of labels."""
    rows = np.column_stack([X.toarray()[:, features.start : features.stop], labels])
    header = ",".join([f"feature{j}" for j in features] + ["class"])
    np.savetxt(path, rows, fmt="%g", delimiter=",", header=header, comments="")
    return path


class Data:
    """The files that the trainings read, made once in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.X, self.y = draw(600, 7, seed=1)
        rng = np.random.default_rng(0)
        self.folder = folder
        (folder / "features.txt").write_text("\n".join(map(str, range(1, N_FEATURES, 3))))
        names = list(map(str, self.y))
        self.text = write_text(folder / "few.txt", self.X, names)
        self.few = self._store("few", self.text)
        self.h5 = self._store("few-hdf5", self.text, ".h5")
        self.sorted = self._store("sorted", self.text, shuffle=False)
        self.two = self._drawn("two", 300, 2)
        self.many = self._drawn("many", 900, 70)
        self.very_many = self._drawn("very-many", 5000, 2100)
        self.valid = self._drawn("valid", 200, 7, like=self.few)
        sets = [",".join(map(str, sorted({y, *rng.integers(7, size=i % 3)}))) for i, y in enumerate(self.y)]
        self.sets = self._store("sets", write_text(folder / "sets.txt", self.X, sets), multilabel=True)
        weights = folder / "weights.txt"
        weights.write_text("".join(f"{weight:.3f}\n" for weight in rng.gamma(2.0, size=600)))
        self.weighted = self._store("weighted", self.text, weights=weights)
        self.parts = [
            self._store(
                f"part{i}",
                write_table(folder / f"part{i}.csv", self.X[i::2], self.y[i::2], range(i, 58 + i)),
                label="class",
            )
            for i in range(2)
        ]
        groups = np.arange(600) // 6
        self.chains = self._store(
            "chains", write_text(folder / "chains.txt", self.X, names, groups), groups=True
        )
        self.costs = np.abs(np.subtract.outer(np.arange(7.0), np.arange(7.0))) * 0.375
        self.tree = {str(c): "low" if c < 4 else "high" for c in range(7)} | {"low": "all", "high": "all"}

    def _store(self, name: str, text: Path, suffix: str = ".zarr", **options: Any) -> Path:
        path = self.folder / (name + suffix)
        convert([text], path, chunk_nnz=1024, progress=False, **options)
        return path

    def _drawn(self, name: str, n: int, k: int, **options: Any) -> Path:
        X, y = draw(n, k, seed=k + n)
        text = write_text(self.folder / f"{name}.txt", X, list(map(str, y)))
        return self._store(name, text, **options)


def fit(data: Any, y: Any = None, **options: Any) -> Trained:
    """A training by `streamsvm.fit`, of two passes unless the options say otherwise."""
    options = {"passes": 2, "C": 0.5} | options
    if y is None:
        options = {"keep_duals": True, "transform": "none"} | options
    return lambda out: streamsvm.fit(data, y, **options, **({"out": out} if y is None else {}))


def resumed(data: Path, **options: Any) -> Trained:
    """A pass, of which each block is committed, that is stopped in its midst, and resumed to three passes."""

    def train(out: Path) -> Any:
        seen = []

        def stop() -> bool:
            seen.append(None)
            return len(seen) == 3

        given = {
            "passes": 1,
            "C": 0.5,
            "transform": "none",
            "keep_duals": True,
            "block_rows": 90,
            "checkpoint_every": "1",
        } | options
        try:
            streamsvm.fit(data, out=out, stop=stop, **given)
        except KeyboardInterrupt:
            pass
        except Exception as error:
            if type(error).__name__ != "Interrupted":
                raise
        return streamsvm.resume(out, passes=3)

    return train


def in_pieces(train: Trained) -> Trained:
    """A training whose blocks are filled by reads of a few rows."""

    def trained(out: Path) -> Any:
        with mock.patch.multiple(memory_plan, READ_BYTES=2**12, READS_OF_ROOM=2**62):
            return train(out)

    return trained


def online(data: Data, **options: Any) -> Trained:
    """One pass over the text as a stream."""
    options = {"transform": "none"} | options
    return lambda out: streamsvm.online(TextSource([data.text]), out=out, **options)


def partial_fit(data: Data, **options: Any) -> Trained:
    """Three batches, one after the other."""

    def train(out: Path) -> Any:
        from streamsvm.sklearn import StreamSVMClassifier

        estimator = StreamSVMClassifier(**options)
        for part in np.array_split(np.arange(600), 3):
            estimator.partial_fit(data.X[part], data.y[part], classes=np.unique(data.y))
        return estimator.model_

    return train


def trainings(data: Data) -> Iterator[tuple[str, Trained]]:
    """The option sets, by name."""
    for loss in ROW_LOSSES:
        for dtype in ("float32", "float64"):
            yield f"loss {loss} {dtype}", fit(data.few, loss=loss, dtype=dtype, gap="pass")
        yield f"one visit {loss}", fit(data.few, loss=loss, dtype="float64", inner_passes=0, passes=3)
        for solver in LOSSES[loss].solvers[1:]:
            yield f"solver {loss} {solver}", fit(data.few, loss=loss, solver=solver)
    for loss in ("ww", "ww2", "wws"):
        yield f"margin {loss}", fit(data.few, loss=loss, margin=0.5)
    for name in ("two", "many"):
        for loss in ("ww", "cs", "ovr", "llw", "logistic", "top-m"):
            yield f"{name} {loss}", fit(getattr(data, name), loss=loss)
    for loss in ("ww", "ww2", "wws", "cs"):
        yield f"very many {loss}", fit(data.very_many, loss=loss)
    for loss in (loss for loss in LOSSES if LOSSES[loss].sequences):
        yield f"{loss}", fit(data.chains, loss=loss)
        for solver in LOSSES[loss].solvers[1:]:
            yield f"{loss} {solver}", fit(data.chains, loss=loss, solver=solver)

    for transform in TRANSFORMS:
        text = transform.format(data.folder)
        yield f"transform {transform}", fit(data.few, transform=text, valid=data.valid)
    for split, losses in SPLIT.items():
        for loss in losses:
            for splits in (2, 3, 4) if loss == "ww" else (2,):
                store = data.many if split == "classes" else data.few
                for workers in (1, 2, 3) if loss == "ww" else (2,):
                    yield (
                        f"{splits} splits by {split} {loss}, {workers} workers",
                        fit(store, loss=loss, split=split, splits=splits, workers=workers, block_rows=250),
                    )
    for loss in (loss for loss in ROW_LOSSES if LOSSES[loss].label_sets):
        yield f"several labels {loss}", fit(data.sets, loss=loss, dtype="float64")
    for loss in ("ww", "cs", "ovr2"):
        yield f"costs {loss}", fit(data.few, loss=loss, dtype="float64", costs=data.costs)
    yield "tree", fit(data.few, tree=data.tree, dtype="float64")
    for loss in ("ww", "cs", "ovr"):
        yield f"class weights {loss}", fit(data.few, loss=loss, class_weight="balanced")
        yield f"sample weights {loss}", fit(data.weighted, loss=loss)
    for slice_rows in (None, 0, 20):
        yield f"slices of {slice_rows}", fit(data.sorted, slice_rows=slice_rows, block_rows=150)
    for join in ("inner", "outer"):
        yield f"joined {join}", fit(data.parts, join=join, transform="l2,bias")
    yield "hold-out", fit(data.few, hold_out="1/5", transform="scale=std")
    yield "hold-out of slices", fit(data.sorted, hold_out="2/5", slice_rows=20, C="auto")
    yield "hdf5", fit(data.h5)
    for loss in ("ww", "cs", "llw", "logistic"):
        yield f"blocks {loss}", fit(data.few, loss=loss, block_rows=90, passes=3)
        yield f"resumed {loss}", resumed(data.few, loss=loss)
    for loss in ("ww", "cs", "llw", "logistic"):
        yield f"pieces {loss}", in_pieces(fit(data.few, loss=loss, passes=3))
        yield f"blocks in pieces {loss}", in_pieces(fit(data.few, loss=loss, block_rows=150, passes=3))
        yield f"resumed in pieces {loss}", in_pieces(resumed(data.few, loss=loss))
    for name, more in {
        "several labels": {"data": data.sets},
        "weighted": {"data": data.weighted},
        "groups": {"data": data.chains, "loss": "chain"},
        "transformed": {"data": data.few, "transform": "idf,l2", "hold_out": "1/5"},
        "many": {"data": data.many},
        "very many": {"data": data.very_many, "block_rows": 2000},
        "slices": {"data": data.sorted, "slice_rows": 20},
        "hdf5": {"data": data.h5, "dtype": "float64"},
        "splits": {"data": data.many, "splits": 3, "split": "classes"},
        "little memory": {"data": data.many, "memory": "3M"},
    }.items():
        yield f"pieces {name}", in_pieces(fit(**{"block_rows": 250, **more}))
    for loss in ("ww", "cs", "ovr", "logistic"):
        yield f"online {loss}", online(data, loss=loss)
        yield f"partial_fit {loss}", partial_fit(data, loss=loss)
    for loss in ("ww", "ovr2", "logistic"):
        yield f"last iterate {loss}", fit(data.few, loss=loss, average=False, passes=4)
    yield "resumed very many", resumed(data.very_many, block_rows=900)
    yield "resumed splits by classes", resumed(data.many, split="classes", splits=3)
    yield "resumed splits by rows", resumed(data.few, split="rows", splits=3)
    yield "resumed slices", resumed(data.sorted, slice_rows=20, transform="idf,l2")
    yield "one pass", fit(data.few, passes=1, C="auto")
    yield "tolerance", fit(data.few, tol=1e-2, passes=40, C=5.0)
    yield "little memory", fit(data.many, memory="3M", block_rows=100)
    yield "hashed stream", online(data, transform="hash=5", dtype="float64")
    for loss in ("ww", "cs", "ovr"):
        yield f"matrix {loss}", fit(data.X, data.y, loss=loss, C="auto")
    yield "dense matrix", fit(data.X.toarray(), data.y, transform="scale=std,bias")
    yield "matrix, hold-out", fit(data.X, data.y, hold_out="1/4", class_weight="balanced")
    yield (
        "tune",
        lambda out: streamsvm.tune(data.few, out=out, C="0.1,1,10", folds=2, transform=["none", "l2"]),
    )
    yield (
        "tune of a matrix",
        lambda out: streamsvm.tune(data.X, data.y, C="2^-2:2^2", loss=["ww", "cs"]).model,
    )


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def dual_digests(run: Path, dual_format: DualFormat) -> Iterator[str]:
    """Yield a hash of the duals of each block of each pass that a run kept, whatever their order in files."""
    found: dict[int, list[DualFile]] = {}
    for path in run.glob("duals-*.bin"):
        pass_number, first, part = map(int, path.stem.split("-")[1:])
        content = path.read_bytes()
        summed = FileSum(len(content), google_crc32c.value(content))
        found.setdefault(pass_number, []).append(DualFile(first, part, summed))
    for pass_number, files in sorted(found.items()):
        duals = PassDuals(dual_format, RunDir(run), pass_number, tuple(sorted(files)))
        firsts = sorted({file.first for file in files})
        for first, end in zip(firsts, [*firsts[1:], firsts[-1] + MAX_ROWS], strict=True):
            old = duals.segment(first, end - first)
            rows = np.repeat(np.arange(len(old.counts)), old.counts)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(old.counts) - old.counts, old.counts)
            ids, values = old.ids[old.at[rows] + nth], old.values[old.at[rows] + nth]
            order = np.lexsort((values, ids, rows))
            arrays = rows[order], ids[order].astype(np.int64), values[order]
            yield digest(*(array.tobytes() for array in arrays))


def describe(train: Trained, out: Path, data: Data) -> dict[str, Any]:
    """Train, and return the hashes of coefficients and duals, the gap, and the accuracy on `valid`."""
    formats = []

    def dual_format(self: Spec, **options: Any) -> DualFormat:
        formats.append(made := DUAL_FORMAT(self, **options))
        return made

    with mock.patch.object(Spec, "dual_format", dual_format):
        trained = train(out)
    model = trained if isinstance(trained, streamsvm.Model) else streamsvm.load_model(out)
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else np.asarray(model.coef_)
    by_class = coef if len(coef) == len(model.classes_) else coef.T
    hashes = list(dual_digests(out, formats[-1])) if formats else []
    result = model.result if trained is model else trained
    found = {
        "coef": digest(np.ascontiguousarray(by_class).tobytes(), np.asarray(model.intercept_).tobytes()),
        "duals": digest(*(each.encode() for each in hashes)) if hashes else None,
        "gap": getattr(result, "relative_gap", None),
        "accuracy": None,
    }
    features = model.feature_names_in_ is None and model.n_features_in_ == N_FEATURES
    if features and len(model.classes_) == 7 and model.transitions_ is None and not model.multilabel:
        found["accuracy"] = streamsvm.evaluate(model, data.valid).accuracy
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """A line for each training that is not in both, or of which something differs."""
    lines = [f"{name}: only before" for name in before.keys() - after.keys()]
    lines += [f"{name}: only after" for name in after.keys() - before.keys()]
    for name in before.keys() & after.keys():
        old, new = before[name], after[name]
        parts = [f"{key} {old[key]} -> {new[key]}" for key in ("gap", "accuracy") if old[key] != new[key]]
        parts += [f"other {key}" for key in ("coef", "duals") if old[key] != new[key]]
        if parts:
            lines.append(f"{name}: {', '.join(parts)}")
    return sorted(lines)


def main(
    out: Annotated[Path, Argument(metavar="OUT.json", help="where the hashes are written")],
    compare: Annotated[Path | None, Option(help="other hashes; exit code 1 if any differ")] = None,
    only: Annotated[str, Option(help="only trainings with this text in their names")] = "",
) -> None:
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Data(Path(folder))
        wanted = [(name, train) for name, train in trainings(data) if only in name]
        for i, (name, train) in enumerate(tqdm(wanted)):
            found[name] = describe(train, Path(folder, f"run{i}"), data)
    write_json(out, {"trainings": found})
    print(f"{len(found)} trainings")
    if compare:
        before = json.loads(compare.read_text())["trainings"]
        lines = differences({name: each for name, each in before.items() if only in name}, found)
        print("\n".join(lines) or "all equal")
        sys.exit(bool(lines))


if __name__ == "__main__":
    start(main, __doc__)
