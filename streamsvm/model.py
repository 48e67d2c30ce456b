"""A trained model: save it, load it, predict with it; neither data nor model need fit in memory."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm import files, format
from streamsvm.coefficients import Source, SparseCoef, open_coef, write_coef
from streamsvm.errors import ModelError, PlanError
from streamsvm.rows import Rows
from streamsvm.settings import MOST_BITS

if TYPE_CHECKING:
    from streamsvm.store import Store


def save_model(
    folder: Path,
    weights: np.ndarray,
    record: dict[str, Any],
    *,
    lag: np.ndarray | None = None,
    lagging: float = 0.0,
    columns: np.ndarray | None = None,
    marks: np.ndarray | None = None,
) -> None:
    """Write ``model.json`` and the coefficients into `folder`, replacing a model that is there.

    Parameters
    ----------
    weights : ndarray, shape (n_features, K)
        Only the first ``len(record["classes"])`` columns are kept.
    lag : ndarray of the same shape, optional
        To subtract, `lagging` times.
    columns : ndarray of int64, optional
        The column of each class, where they do not stand in the order of ``record["classes"]``.
    marks : ndarray, shape (n_features, 2), optional
        Zero for features whose weights are zero, which are then not read: they may be holes of a file.
    record : dict
        What the model is; equal records and weights give equal bytes.
    """
    aside, old = folder.with_name(folder.name + ".aside"), folder.with_name(folder.name + ".old")
    files.remove(aside)
    aside.mkdir()
    if columns is None:
        columns = np.arange(len(record["classes"]))
    stored = write_coef(aside, Source(weights, lag, lagging, columns, marks))
    sealed = format.sealed({"version": format.MODEL_VERSION, **record, **stored})
    (aside / format.MODEL_JSON).write_text(json.dumps(sealed, indent=1) + "\n")
    files.sync_tree(aside)
    files.remove(old)
    if folder.exists():
        os.rename(folder, old)
    os.rename(aside, folder)
    files.sync_dir(folder.parent)
    files.remove(old)


def check_room(folder: Path, n_features: int, n_classes: int, itemsize: int) -> None:
    """Raise `PlanError` if the disk that `folder` is on cannot take such a model."""
    size, free = n_features * n_classes * itemsize, shutil.disk_usage(folder).free
    if size > free:
        raise PlanError(
            f"a model of {n_features:,} features and {n_classes:,} classes takes {size / 1e9:,.1f} GB, and "
            f"{folder} has {free / 1e9:,.1f} GB of disk left; free some space, or hash the features to fewer "
            "(`streamsvm online --hash-bits`)"
        )


def load_model(path: str | Path) -> Model:
    """Open the model in `path`, a model folder or a run directory with one.

    The coefficients stay on disk, memory-mapped; they are read once to check them.

    Raises
    ------
    ModelError
        If there is no model, or it is damaged.
    """
    path = Path(path)
    folder = path if (path / format.MODEL_JSON).exists() else path / format.MODEL
    header = folder / format.MODEL_JSON
    try:
        record = json.loads(header.read_bytes())
        if not format.is_sealed(record):
            raise ModelError(f"{header} is damaged: its checksum does not match")
        if record["version"] not in (*format.OLD_MODEL_VERSIONS, format.MODEL_VERSION):
            raise ModelError(
                f"{header} has model format {record['version']}, not {format.MODEL_VERSION} or an older one; "
                "use the version of streamsvm that made it"
            )
        if not _is_sound(record):
            raise TypeError("an entry is not what it should be")
        coef = open_coef(folder, record)
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
        raise ModelError(f"{error.filename or folder} cannot be read: {files.reason(error)}") from None
    return Model(coef, record)


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
    if version in format.OLD_MODEL_VERSIONS and (version == 2) != bool(hashed):
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
    dtype : dtype
        Of coefficients and scores.
    record : dict
        All that ``model.json`` says. If it has a ``hash``, features are those of `hashed` rows.
    """

    def __init__(self, coef: np.ndarray | SparseCoef, record: dict[str, Any]) -> None:
        self._coef = coef
        self.dtype: np.dtype = coef.dtype
        self.classes_ = np.array(record["classes"], dtype=str)
        self.n_features = coef.shape[0]
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
        Labels are in this model's codes, -1 where it does not know them. Raises `StoreError` if the
        store has features that the model lacks, or counts them differently, or, if `labelled`, none
        of its labels is known; `ModelError` if the model hashes features that the store does not number.
        """
        from streamsvm.stream import ReadAhead, blocks_to_score

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
        from streamsvm.hashing import hash_rows

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
        from streamsvm.kernels import score_rows
        from streamsvm.sparse_rows import score_sparse_rows

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
        X : array_like or scipy sparse matrix or array, shape (n, n_features)

        Returns
        -------
        ndarray, shape (n, n_classes), in the model's dtype

        Raises
        ------
        ModelError
            If `X` has another number of features.
        """
        rows = self._rows(X)
        result = np.empty((rows.n_rows, len(self.classes_)), self.dtype)
        for begin, scores in self.scores(rows):
            result[begin : begin + len(scores)] = scores
        return result

    def predict(self, X: Any) -> np.ndarray:
        """Labels (str, shape (n,)) of the rows of `X`; of equal scores the first class wins."""
        rows = self._rows(X)
        best = np.empty(rows.n_rows, np.int64)
        for begin, scores in self.scores(rows):
            best[begin : begin + len(scores)] = scores.argmax(axis=1)
        return self.classes_[best]

    def _rows(self, X: Any) -> Rows:
        import scipy.sparse

        X = scipy.sparse.csr_array(X)
        if X.shape[1] != self.n_features:
            raise ModelError(f"the data has {X.shape[1]} features, the model {self.n_features}")
        if not X.has_canonical_format:
            X = X.copy()  # the caller's arrays stay as they are
            X.sum_duplicates()
        return Rows(
            np.ascontiguousarray(X.data, self.dtype),
            np.ascontiguousarray(X.indices, format.index_dtype(self.n_features)),
            X.indptr.astype(np.int64),
            np.full(X.shape[0], format.UNSEEN_LABEL, format.LABEL_DTYPE),
            np.zeros(X.shape[0]),
        )
