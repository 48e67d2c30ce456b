"""A trained model: save it, load it, predict with it; neither data nor model need fit in memory."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm import durable, format
from streamsvm.coefficients import Source, SparseCoef, open_coef, write_coef
from streamsvm.data.feature_names import feature_names, match_features, sort_rows
from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError, PlanError, StreamsvmWarning
from streamsvm.settings import MOST_BITS
from streamsvm.text import check_classes, check_local, format_size

if TYPE_CHECKING:
    from streamsvm.store import Store

_FILES = (format.MODEL_JSON, format.COEF, *format.SPARSE_COEF.values(), format.FEATURES)
_LOOKS, _PAUSE = 20, 0.01  # at a model that is exchanged while it is read, and seconds between them


def save_model(
    folder: Path, coefficients: Source, record: dict[str, Any], *, names: Sequence[str] | None = None
) -> None:
    """Write ``model.json`` and the coefficients into `folder`, replacing an existing model.

    Parameters
    ----------
    folder : Path
    coefficients : Source
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
    """Write the names of the features; what the model's record says of them."""
    text = json.dumps(list(names), separators=(",", ":")).encode()
    path.write_bytes(text)
    return {"features_sha256": hashlib.sha256(text).hexdigest()}


def _read_names(path: Path, record: dict[str, Any]) -> list[str] | None:
    """The names of the features, checked against the model's record; None if they have none."""
    if "features_sha256" not in record:
        return None
    text = durable.read_bounded(path, follow=True)
    if hashlib.sha256(text).hexdigest() != record["features_sha256"]:
        raise ModelError(f"{path} is damaged: its checksum does not match")
    names = json.loads(text)
    if not (format.are_labels(names) and len(set(names)) == len(names) == record["n_features"]):
        raise ModelError(f"{path} is damaged: it does not name the features that model.json describes")
    return names


def check_room(folder: Path, n_features: int, n_classes: int, itemsize: int) -> None:
    """Raise `PlanError` if the disk that `folder` is on cannot take such a model."""
    size, free = n_features * n_classes * itemsize, shutil.disk_usage(folder).free
    if size > free:
        raise PlanError(
            f"a model of {n_features:,} features and {n_classes:,} classes takes {format_size(size)}, and "
            f"{folder} has {format_size(free)} of disk left; free some space, or hash the features to fewer "
            "(`streamsvm online --hash-bits`)"
        )


def load_model(path: str | Path) -> Model:
    """Open the model in `path`, a model folder or a run directory with one.

    The coefficients stay on disk, memory-mapped; they are read once to check them. If another model takes
    its place meanwhile, it is that one.

    Raises
    ------
    ModelError
        If there is no model, it is damaged, or a class has a control character in its name.
    """
    path = Path(path)
    check_local(path, ModelError)
    for _ in range(_LOOKS):
        before = _marks(path)
        try:
            return _load(path)
        except ModelError:
            if _marks(path) == before and not _is_exchanged(path):
                raise
            time.sleep(_PAUSE)
    return _load(path)


def _marks(path: Path) -> list[Any]:
    """What tells a model from the one that takes its place."""
    return [durable.mark(folder / name) for folder in (path, path / format.MODEL) for name in _FILES]


def _is_exchanged(path: Path) -> bool:
    """Whether `save_model` is between its two renames."""
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
        if not _is_sound(record):
            raise TypeError("an entry is not what it should be")
        check_classes(record["classes"], header, ModelError)
        coef = open_coef(folder, record)
        names = _read_names(folder / format.FEATURES, record)
    except (FileNotFoundError, NotADirectoryError) as error:
        if (path / format.RUN_JSON).exists():
            raise ModelError(f"{path} has no finished model yet: `streamsvm resume {path}`") from None
        raise ModelError(
            f"{error.filename}: no model is there; give a run directory or a model folder"
        ) from None
    except (ValueError, RecursionError):
        raise ModelError(f"{header} is damaged: not JSON") from None
    except (KeyError, TypeError):  # sealed, but not by us
        raise ModelError(f"{header} is damaged: an entry is missing, or is not what it should be") from None
    except OSError as error:
        raise ModelError(f"{error.filename or folder} cannot be read: {durable.reason(error)}") from None
    return Model(coef, record, names)


def _is_sound(record: dict[str, Any]) -> bool:
    """Whether a record's entries that others rely on could be some that `save_model` was given."""
    classes, base, hashed = record["classes"], record["index_base"], record.get("hash")
    if hashed:
        bits, seed = hashed["bits"], hashed["seed"]
        if not (type(bits) is type(seed) is int and 1 <= bits <= MOST_BITS and 0 <= seed < 2**63):
            return False
        if record["n_features"] != 2**bits:
            return False
    version = record["version"]
    if version < format.MODEL_VERSION and (version == 2) != bool(hashed):
        return False
    return (
        type(record["n_features"]) is int
        and record["n_features"] >= 0
        and format.are_labels(classes)
        and len(classes) > 0
        and record["dtype"] in ("float32", "float64")
        and (base is None or (type(base) is int and base in (0, 1)))
    )


class Model:
    """A linear classifier: the class of x is the one whose column of `coef_` scores it highest.

    Attributes
    ----------
    coef_ : ndarray or scipy.sparse.csr_array, shape (n_features, n_classes)
        Memory-mapped, read-only. Sparse where that takes less than a quarter of the bytes, with 64 classes or
        more: ``coef_.toarray()`` is what a dense model has.
    classes_ : ndarray of str, shape (n_classes,)
        The labels as they stood in the training data.
    n_features : int
    feature_names_in_ : ndarray of str objects, shape (n_features,), or None
        Names of the features, if they had any in training: new data is matched by them.
    dtype : dtype
        Of coefficients and scores.
    record : dict
        All that ``model.json`` says. If it has a ``hash``, features are those of `hashed` rows.
    """

    def __init__(
        self,
        coef: np.ndarray | SparseCoef,
        record: dict[str, Any],
        feature_names: Sequence[str] | None = None,
    ) -> None:
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

    def batches(
        self, store: Store, memory: int = 2**28, *, share: int = 1, labelled: bool = True
    ) -> Iterator[Rows]:
        """The rows of a store in its order, some at a time within `memory` bytes, ready to score.

        Or within one of `share` equal parts of `memory`; messages speak of the whole.
        Labels are in this model's codes, -1 where it does not know them. Columns are matched with the
        model's features by name, in any order, and by position where neither side has names.

        Raises
        ------
        FeatureError
            If only one side names its features, or they are not the same names.
        StoreError
            If the store, without names, has features that the model lacks, or counts them differently;
            or, if `labelled`, none of its labels is known.
        ModelError
            If the model hashes features that the store does not number.
        """
        from streamsvm.data.blocks import ReadAhead, blocks_to_score

        base, n_features, shift = self.record.get("index_base"), self.n_features, 0
        if self.is_hashed and store.index_base is None:
            raise ModelError(
                f"the model hashes the numbers of features in text, and those of {store.path} have none"
            )
        if self.is_hashed:
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
            share=share,
            labelled=labelled,
            feature_names=self.feature_names_in_,
        )
        for rows in ReadAhead()(blocks.read, range(len(blocks))):
            yield self.hashed(rows._replace(indices=rows.indices + shift) if shift else rows)

    @property
    def is_hashed(self) -> bool:
        """Whether features are hashed to the model's columns."""
        return bool(self.record.get("hash"))

    def hashed(self, rows: Rows) -> Rows:
        """Rows with the indices of the text, hashed as in training; the same if the model hashes nothing."""
        if not self.is_hashed:
            return rows
        from streamsvm.transforms.hashing import hash_rows

        return hash_rows(rows, self.record["hash"]["bits"], self.record["hash"]["seed"])

    def scores(self, rows: Rows, memory: int = 2**26) -> Iterator[tuple[int, np.ndarray]]:
        """Scores of `rows`, some at a time: an array of at most `memory` bytes, or of one row.

        Yields
        ------
        begin : int
            First row of the piece.
        scores : ndarray, shape (n, n_classes)
            In the model's dtype; the array is used again for the next piece.
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
            Column j is the model's feature j: in LIBSVM text the one with the number j + index_base.
            Where columns have names (the columns of a DataFrame, ``var_names`` of AnnData), they are
            matched with the model's names, in any order. To a model that hashes features, `X` may
            have any number of columns, and column j is the feature with the number j in the text:
            what scikit-learn's ``load_svmlight_file(..., zero_based=True)`` gives.

        Returns
        -------
        ndarray, shape (n, n_classes), in the model's dtype

        Raises
        ------
        ModelError
            If `X` has another number of features, or a value or a score is not finite (in the model's
            dtype): says which row and column.
        FeatureError
            If the columns' names are not the model's names, or only `X` has names.

        Warns
        -----
        StreamsvmWarning
            If only the model has names: columns are then taken to be in its order.
        """
        rows = self._rows(X)
        result = np.empty((rows.n_rows, len(self.classes_)), self.dtype)
        for begin, scores in self._finite_scores(rows):
            result[begin : begin + len(scores)] = scores
        return result

    def predict(self, X: Any) -> np.ndarray:
        """Labels (str, shape (n,)) of the rows of `X`; of equal scores the first class wins.

        `X`, errors and warnings as in `decision_function`.
        """
        rows = self._rows(X)
        best = np.empty(rows.n_rows, np.int64)
        for begin, scores in self._finite_scores(rows):
            best[begin : begin + len(scores)] = scores.argmax(axis=1)
        return self.classes_[best]

    def _finite_scores(self, rows: Rows) -> Iterator[tuple[int, np.ndarray]]:
        for begin, scores in self.scores(rows):
            finite = np.isfinite(scores).all(axis=1)
            if not finite.all():
                row = begin + int(np.argmin(finite))
                raise ModelError(f"row {row} of X: a score is beyond {scores.dtype}; scale the values down")
            yield begin, scores

    def _rows(self, X: Any) -> Rows:
        """The rows of `X`, their columns those of `coef_`."""
        import scipy.sparse

        matrix, names = _unlabelled(X)
        columns = self._columns(names)
        if not scipy.sparse.issparse(matrix):
            matrix = np.asarray(matrix)
        if matrix.dtype == np.float16:  # which SciPy does not take
            matrix = matrix.astype(np.float32)
        if matrix.ndim == 2 and matrix.dtype.kind in "fiub":  # SciPy before 1.15 takes no other
            matrix = scipy.sparse.csr_array(matrix)
        if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
            raise ModelError(
                f"X has {matrix.ndim} axes and values of type {matrix.dtype}; give a matrix of numbers, "
                "rows by features"
            )
        if matrix.shape[1] != self.n_features and not self.is_hashed:
            raise ModelError(f"the data has {matrix.shape[1]} features, the model {self.n_features}")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()  # the caller's arrays stay as they are
            matrix.sum_duplicates()
        with np.errstate(over="ignore"):
            data = np.ascontiguousarray(matrix.data, self.dtype)
        finite = np.isfinite(data)
        if not finite.all():
            at = int(np.argmin(finite))
            row, column = int(np.searchsorted(matrix.indptr, at, "right")) - 1, matrix.indices[at]
            raise ModelError(
                f"X, row {row}, column {column}: {matrix.data[at]} is not finite as {data.dtype}; "
                "drop or replace such values"
            )
        indptr = matrix.indptr.astype(np.int64)
        if columns is not None:
            data, indices = sort_rows(data.copy(), columns[matrix.indices], indptr, self.n_features)
        else:
            numbered = np.int64 if self.is_hashed else format.index_dtype(self.n_features)
            indices = np.ascontiguousarray(matrix.indices, numbered)
        labels = np.full(len(indptr) - 1, format.UNSEEN_LABEL, format.LABEL_DTYPE)
        return self.hashed(Rows(data, indices, indptr, labels, np.zeros(len(labels))))

    def _columns(self, names: list[str] | None) -> np.ndarray | None:
        """The model's columns of those of an X with these names, unless they are the same."""
        if names is None and self.feature_names_in_ is not None:
            warnings.warn(
                "X does not name its features, and the model does: its columns are taken to be in the order "
                "of the model's feature_names_in_",
                StreamsvmWarning,
                stacklevel=4,
            )
            return None
        return match_features(names, self.feature_names_in_, "X")


def _unlabelled(X: Any) -> tuple[Any, list[str] | None]:
    """The matrix of an AnnData or a DataFrame, and the names of its columns; of anything else, X itself."""
    if hasattr(X, "var_names") and hasattr(X, "X"):
        return X.X, feature_names(X.var_names, "X")
    if hasattr(X, "columns") and hasattr(X, "to_numpy"):
        return X.to_numpy(), feature_names(X.columns, "X")
    return X, None
