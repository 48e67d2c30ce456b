"""A trained model: save it, load it, predict with it; neither data nor model need to fit in memory."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from streamsvm import durable, format
from streamsvm.coefficients import Coefficients, DenseRows, SparseCoef, open_coef, write_coef
from streamsvm.data.arrays import as_matrix
from streamsvm.data.feature_names import match_features, sort_rows
from streamsvm.data.rows import Rows
from streamsvm.errors import Call, ModelError, Option, PlanError, Remedy, StreamsvmWarning
from streamsvm.schema import Check, Count, SchemaError, decode
from streamsvm.text import check_classes, check_local, format_size, printable
from streamsvm.transforms import TRANSFORMS, Transform, apply, records_of, transforms_from

if TYPE_CHECKING:
    from streamsvm.store import Store
    from streamsvm.training.results import FitResult

_FILES = (format.MODEL_JSON, format.COEF, *format.SPARSE_COEF.values(), format.FEATURES)
_OF_STORAGE = (
    "version",
    "checksum",
    "layout",
    "nnz",
    "coef_crc32",
    "features_sha256",
)  # entries of the record
_ATTEMPTS, _PAUSE = 20, 0.01  # to read a model that another process replaces, and seconds between them


def save_model(
    folder: Path, coefficients: Coefficients, record: dict[str, Any], *, names: Sequence[str] | None = None
) -> None:
    """Write ``model.json`` and the coefficients into `folder`, replacing an existing model.

    Parameters
    ----------
    folder : Path
    coefficients : Coefficients
        With a column for each of ``record["classes"]``.
    record : dict
        The description of the model; equal records and coefficients give equal bytes.
    names : sequence of str, optional
        Of the features, for ``features.json``.
    """
    aside, old = folder.with_name(folder.name + ".aside"), folder.with_name(folder.name + ".old")
    durable.remove(aside)
    aside.mkdir()
    stored = write_coef(aside, coefficients)
    if names is not None:
        stored |= _write_names(aside / format.FEATURES, names)
    sealed = format.sealed({"version": format.MODEL_VERSION, **record, **stored})
    (aside / format.MODEL_JSON).write_text(json.dumps(sealed, indent=1) + "\n")
    durable.sync_tree(aside)
    durable.remove(old)
    if folder.exists():
        os.rename(folder, old)
    os.rename(aside, folder)
    durable.sync_dir(folder.parent)
    durable.remove(old)


def _write_names(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Write the names of the features; return their entry in the model's record."""
    text = json.dumps(list(names), separators=(",", ":")).encode()
    path.write_bytes(text)
    return {"features_sha256": hashlib.sha256(text).hexdigest()}


def _read_names(path: Path, record: dict[str, Any]) -> list[str] | None:
    """Read the names of the features and check them against the model's record; None if they have none."""
    if "features_sha256" not in record:
        return None
    text = durable.read_bounded(path, follow=True)
    if hashlib.sha256(text).hexdigest() != record["features_sha256"]:
        raise ModelError(f"{path} is damaged: its checksum does not match")
    names: list[str] = json.loads(text)
    if not (format.are_labels(names) and len(set(names)) == len(names) == record["n_features"]):
        raise ModelError(f"{path} is damaged: it does not name the features that model.json describes")
    return names


def check_room(folder: Path, n_features: int, n_classes: int, itemsize: int) -> None:
    """Raise `PlanError` if the disk of `folder` has no room for such a model."""
    size, free = n_features * n_classes * itemsize, shutil.disk_usage(folder).free
    if size > free:
        hashed = Call("online", options=(Option("hash_bits"),))
        raise PlanError(
            f"a model of {n_features:,} features and {n_classes:,} classes takes {format_size(size)}, and "
            f"the disk of {folder} has {format_size(free)} left",
            remedy=Remedy("free some space, or hash the features to fewer columns with {}", hashed),
        )


def load_model(path: str | Path) -> Model:
    """Open the model in `path`, a model folder or a run directory with one.

    The coefficients stay on disk, memory-mapped; they are read once to check them. If another process
    replaces the model meanwhile, the new one is opened.

    Raises
    ------
    ModelError
        If there is no model, it is damaged, or a class has a control character in its name.
    """
    path = Path(path)
    check_local(path, ModelError)
    for _ in range(_ATTEMPTS):
        before = _marks(path)
        try:
            return _load(path)
        except ModelError:
            if _marks(path) == before and not _is_being_replaced(path):
                raise
            time.sleep(_PAUSE)
    return _load(path)


def _marks(path: Path) -> list[Any]:
    """Marks of the model's files, which differ once another process replaces the model."""
    return [durable.file_identity(folder / name) for folder in (path, path / format.MODEL) for name in _FILES]


def _is_being_replaced(path: Path) -> bool:
    """Return True if `save_model` is between its two renames."""
    folder = path / format.MODEL if (path / format.RUN_JSON).exists() else path
    return not folder.exists() and folder.with_name(folder.name + ".old").exists()


def _load(path: Path) -> Model:
    folder = path if (path / format.MODEL_JSON).exists() else path / format.MODEL
    header = folder / format.MODEL_JSON
    try:
        record = durable.read_record(header, follow=True)
        if not format.is_sealed(record):
            raise ModelError(f"{header} is damaged: its checksum does not match")
        if record["version"] not in format.MODEL_VERSIONS:
            raise ModelError(
                f"{header} has model format {record['version']}, and this program reads up to "
                f"{format.MODEL_VERSION}; update streamsvm"
            )
        decoded = decode(_Record, record)
        for transform in decoded.transforms:
            if transform["name"] not in TRANSFORMS:
                name = printable(str(transform["name"]))
                raise ModelError(
                    f"{header} has a transform {name} that this program does not know; update streamsvm"
                )
        transforms = transforms_from(decoded.transforms)
        if transforms and record["n_features"] != transforms[-1].n_features(record["n_features"]):
            raise ModelError(f"{header} is damaged: its transforms give another number of features")
        check_classes(record["classes"], header, ModelError)
        coef = open_coef(folder, record)
        names = _read_names(folder / format.FEATURES, record)
    except (FileNotFoundError, NotADirectoryError) as error:
        if (path / format.RUN_JSON).exists():
            remedy = Remedy("{} finishes it", Call("resume", path))
            raise ModelError(f"{path} has no finished model yet", remedy=remedy) from None
        raise ModelError(
            f"{error.filename}: there is no model; give a run directory or a model folder"
        ) from None
    except SchemaError as error:  # its checksum is right, but we did not write it
        raise ModelError(f"{header} is damaged: {error}") from None
    except (ValueError, RecursionError):
        raise ModelError(f"{header} is damaged: not JSON") from None
    except (KeyError, TypeError):
        raise ModelError(f"{header} is damaged: an entry is missing, or has the wrong type") from None
    except OSError as error:
        raise ModelError(f"{error.filename or folder} cannot be read: {durable.reason(error)}") from None
    return Model(coef, record, names, transforms)


def _are_classes(names: list[str]) -> bool:
    return bool(names) and format.are_labels(names)


class _Hash(NamedTuple):
    """Feature hashing in records of version 2 and 3, which have no other transform."""

    bits: int
    seed: int


@dataclasses.dataclass
class _Record:
    """The entries of ``model.json`` that other code relies on."""

    version: int
    classes: Annotated[list[str], Check(_are_classes, "a list of labels")]
    n_features: Count
    dtype: Literal["float32", "float64"]
    index_base: Literal[0, 1] | None
    transforms: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    hash: _Hash | None = None

    def __post_init__(self) -> None:
        if self.version < 3 and (self.version == 2) != (self.hash is not None):
            raise ValueError(f"a model of version {self.version} has no hash, or needs one")
        if self.hash is not None:
            self.transforms = [{"name": "hash", **self.hash._asdict()}]


class Model:
    """A linear classifier: the class of x is the one whose column of `coef_` scores it highest.

    Attributes
    ----------
    coef_ : ndarray or scipy.sparse.csr_array, shape (n_features, n_classes)
        Memory-mapped, read-only. Sparse where that takes less than a quarter of the bytes and there are 64
        classes or more; ``coef_.toarray()`` is then the dense matrix.
    classes_ : ndarray of str, shape (n_classes,)
        The labels as written in the training data.
    n_features : int
    feature_names_in_ : ndarray of str objects, shape (n_features,), or None
        Names of the features, if the training data had any; new data is matched by them.
    dtype : dtype
        Type of coefficients and scores.
    record : dict
        The contents of ``model.json``.
    transforms : sequence of Transform
        Applied to rows before they are scored, as in training.
    result : FitResult or None
        How it was trained, if `streamsvm.fit` returned it.
    """

    def __init__(
        self,
        coef: np.ndarray | SparseCoef,
        record: dict[str, Any],
        feature_names: Sequence[str] | None = None,
        transforms: Sequence[Transform] = (),
    ) -> None:
        self.transforms = transforms
        self.result: FitResult | None = None
        self._coef = coef
        self.dtype: np.dtype = coef.dtype
        self.classes_ = np.array(record["classes"], dtype=str)
        self.n_features = coef.shape[0]
        self.feature_names_in_: Any = None if feature_names is None else np.array(feature_names, dtype=object)
        self.record = record

    @functools.cached_property
    def coef_(self) -> Any:
        if isinstance(self._coef, np.ndarray):
            return self._coef
        import scipy.sparse

        return scipy.sparse.csr_array(self._coef[:3], shape=self._coef.shape)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model into the model folder `path`, which `load_model` reads.

        A model that `path` already holds is replaced. Coefficients are stored sparsely where that is much
        smaller.

        Raises
        ------
        ModelError
            If `path` holds anything but a model, or cannot be written.
        """
        check_local(path, ModelError)
        folder = Path(os.path.realpath(path))
        coef = self._coef if isinstance(self._coef, np.ndarray) else DenseRows(self.coef_)
        columns = np.arange(len(self.classes_))
        record = {name: value for name, value in self.record.items() if name not in (*_OF_STORAGE, "hash")}
        record |= {
            "n_features": self.n_features,
            "dtype": str(self.dtype),
            "index_base": self.record.get("index_base"),
            "transforms": records_of(self.transforms),
        }
        names = None if self.feature_names_in_ is None else self.feature_names_in_.tolist()
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            others = sorted(set(os.listdir(folder)) - set(_FILES)) if folder.exists() else []
            if others:
                raise ModelError(f"{path} holds {others[0]}, which is no part of a model; give a new folder")
            save_model(folder, Coefficients(coef, None, 0.0, columns, None), record, names=names)
        except OSError as error:
            raise ModelError(
                f"{error.filename or folder} cannot be written: {durable.reason(error)}"
            ) from None

    def batches(self, store: Store, memory: int = 2**28, *, labelled: bool = True) -> Iterator[Rows]:
        """Read the rows of a store in its order, in batches of at most `memory` bytes, ready to score.

        Labels are codes of this model's classes, -1 for unknown labels. Columns are matched with the
        model's features by name, in any order, and by position if neither side has names.

        Raises
        ------
        FeatureError
            If only one side names its features, or they are not the same names.
        StoreError
            If the store, without names, has features that the model lacks, or another index base; or, if
            `labelled`, no label that the model knows.
        ModelError
            If the model hashes feature numbers and the store has none.
        PlanError
            If `memory` cannot hold the longest row.
        """
        from streamsvm.data.blocks import blocks_to_score
        from streamsvm.data.prefetch import Prefetcher

        base, n_features, shift = self.record.get("index_base"), self.n_features, 0
        if self.takes_any_feature and store.index_base is None:
            raise ModelError(
                f"the model hashes the feature numbers of LIBSVM text, and the features of {store.path} have "
                "none"
            )
        if self.takes_any_feature:
            base, n_features, shift = store.index_base, store.n_features, store.index_base or 0
        elif (base, store.index_base) == (0, 1):  # the model has a feature 0, which the store left out
            base, n_features, shift = 1, self.n_features - 1, 1
        blocks = blocks_to_score(
            store,
            classes=self.record["classes"],
            n_features=n_features,
            index_base=base,
            dtype=self.dtype,
            memory=memory,
            labelled=labelled,
            feature_names=self.feature_names_in_,
        )
        with Prefetcher(map(blocks.read, range(len(blocks)))) as all_rows:
            for rows in all_rows:
                yield self.transformed(rows._replace(indices=rows.indices + shift) if shift else rows)

    @property
    def takes_any_feature(self) -> bool:
        """Return True if data may have features that training did not see: they are hashed."""
        return any(transform.takes_any_feature for transform in self.transforms)

    def transformed(self, rows: Rows) -> Rows:
        """Rows, with the feature numbers of text, after the transforms of the training."""
        return apply(self.transforms, rows)

    def scores(self, rows: Rows, memory: int = 2**26) -> Iterator[tuple[int, np.ndarray]]:
        """Score `rows` in pieces of at most `memory` bytes of scores, or of one row.

        Yields
        ------
        begin : int
            First row of the piece.
        scores : ndarray, shape (n, n_classes)
            In the model's dtype; the array is reused for the next piece.
        """
        from streamsvm.kernels.score import score_rows
        from streamsvm.kernels.sparse_coef import score_sparse_rows

        rows = rows._replace(data=rows.data.astype(self.dtype, copy=False))
        n_classes = len(self.classes_)
        step = max(1, memory // max(1, n_classes * self.dtype.itemsize))
        scores = np.empty((min(step, rows.n_rows), n_classes), self.dtype)
        for begin in range(0, rows.n_rows, step):
            end = min(begin + step, rows.n_rows)
            if isinstance(self._coef, np.ndarray):
                score_rows(rows, begin, end, self._coef, scores)
            else:
                score_sparse_rows(rows, begin, end, *self._coef[:3], scores)
            yield begin, scores[: end - begin]

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores of all rows of `X`.

        Parameters
        ----------
        X : array_like, scipy sparse matrix or array, DataFrame or AnnData, shape (n, n_features)
            Column j is the model's feature j, which in LIBSVM text has the number j + index_base.
            Named columns (of a DataFrame, or ``var_names`` of AnnData) are matched with the model's
            names, in any order. For a model that hashes features, `X` may have any number of columns,
            and column j is the feature with the number j in the text, as
            scikit-learn's ``load_svmlight_file(..., zero_based=True)`` reads it.

        Returns
        -------
        ndarray, shape (n, n_classes), in the model's dtype

        Raises
        ------
        ModelError
            If `X` has another number of features, or a value or a score is not finite in the model's
            dtype; names the row and column.
        FeatureError
            If the names of the columns are not the model's, or only `X` has names.

        Warns
        -----
        StreamsvmWarning
            If only the model has names; columns are then assumed to be in its order.
        """
        rows = self.rows(X)
        result = np.empty((rows.n_rows, len(self.classes_)), self.dtype)
        for begin, scores in self._finite_scores(rows):
            result[begin : begin + len(scores)] = scores
        return result

    def predict(self, X: Any) -> np.ndarray:
        """Predict the labels of the rows of `X`; of equal scores the first class wins.

        Parameters, errors and warnings are those of `decision_function`. For data that does not fit in
        memory, see `streamsvm.predict`.

        Returns
        -------
        ndarray of str, shape (n,)
        """
        rows = self.rows(X)
        best = np.empty(rows.n_rows, np.int64)
        for begin, scores in self._finite_scores(rows):
            best[begin : begin + len(scores)] = scores.argmax(axis=1)
        return self.classes_[best]

    def _finite_scores(self, rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
        for begin, scores in self.scores(rows):
            finite = np.isfinite(scores).all(axis=1)
            if not finite.all():
                row = begin + int(np.argmin(finite))
                raise ModelError(f"row {row} of X: a score overflows {scores.dtype}; scale the values down")
            yield begin, scores

    def rows(self, X: Any, y: Any = None) -> Rows:
        """The rows of a matrix with this model's features, ready to score.

        Parameters
        ----------
        X : as for `decision_function`
        y : array_like, shape (n,), optional
            Labels, compared with `classes_` as text; those unknown get the code -1.
        """
        matrix = as_matrix(X, self.dtype, ModelError)
        columns = self._columns(matrix.names)
        if matrix.n_features != self.n_features and not self.takes_any_feature:
            raise ModelError(f"the data has {matrix.n_features} features, the model {self.n_features}")
        data, indices, indptr = matrix[:3]
        if columns is not None:
            data, indices = sort_rows(data.copy(), columns[indices], indptr, self.n_features)
        else:
            numbered = np.int64 if self.takes_any_feature else format.index_dtype(self.n_features)
            indices = np.ascontiguousarray(indices, numbered)
        labels = self._codes(y, len(indptr) - 1)
        return self.transformed(Rows(data, indices, indptr, labels, np.zeros(len(labels))))

    def _codes(self, y: Any, n: int) -> np.ndarray:
        """Class codes of labels; -1 for those unknown, or if there are none."""
        if y is None:
            return np.full(n, format.UNSEEN_LABEL, format.LABEL_DTYPE)
        if len(y) != n:
            raise ModelError(f"X has {n:,} rows, and y {len(y):,} labels")
        code = {label: c for c, label in enumerate(self.record["classes"])}
        return np.array([code.get(str(label), format.UNSEEN_LABEL) for label in y], format.LABEL_DTYPE)

    def _columns(self, names: list[str] | None) -> np.ndarray | None:
        """The model's column of each column of an X with these names; None if they are the same."""
        if names is None and self.feature_names_in_ is not None:
            warnings.warn(
                "X does not name its features, and the model does: its columns are assumed to be in the "
                "order of the model's feature_names_in_",
                StreamsvmWarning,
                stacklevel=4,
            )
            return None
        return match_features(names, self.feature_names_in_, "X")
