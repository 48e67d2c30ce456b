"""Names, dtypes and format versions of everything written to disk; they are defined only here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable
from streamsvm.errors import Remedy, StreamsvmError

# -- store -----------------------------------------------------------------------------------------

STORE_VERSION = 5
STORE_ATTR = "streamsvm"  # root attribute with the store record
CHUNK_NNZ = 2**18  # values per chunk: enough to amortise the cost of a read, but far fewer than in a block

INDPTR_DTYPE = np.dtype(np.int64)
LABEL_DTYPE = np.dtype(np.int32)
NORM2_DTYPE = np.dtype(np.float64)
WEIGHT_DTYPE = np.dtype(np.float64)
QID_DTYPE = np.dtype(np.int64)
UNSEEN_LABEL = -1


def index_dtype(n_features: int) -> np.dtype:
    """Return int32 if it can represent all feature numbers, else int64."""
    return np.dtype(np.int32 if n_features <= np.iinfo(np.int32).max else np.int64)


# -- run directory ---------------------------------------------------------------------------------

RUN_VERSION = 17  # versions 1 to 16 are unreleased
RUN_JSON = "run.json"
ANNDATA = "anndata"  # entry of the store record: True if the rows come from X, raw.X or a layer of AnnData
ONLINE = "online"  # kind of a run that learns from a stream; runs of `fit` have no kind
WEIGHTS = "weights.bin"
AVERAGE_DELTA = "weights-avg.bin"
SPARSE_WEIGHTS = "weights-sparse.bin"
RUN_COSTS = "class-costs.npy"
COMMIT = "commit.json"
METRICS = "metrics.jsonl"
LOCK = "lock"
BASE = "from"  # copy of the model that the run starts from
RUN_DATA = "data.zarr"  # store that the run converted from other files
CACHE = "cache"  # local copies of remote data
TUNING_JSON, TUNED, TRIALS = "tune.json", "tune.jsonl", "tune"
REPLACED = "replaced"  # marker file in an old run that a new run has moved aside
REPORT = "report.html"
# Dual files are named by pass, first row of the block, and number within the block; committed weights are
# numbered from 1.
DUALS, COMMITTED = "duals", "committed"
_NUMBER = "-[0-9]{1,18}"
_STATE_NAME = re.compile(rf"({DUALS}{_NUMBER}{_NUMBER}{_NUMBER}|{COMMITTED}{_NUMBER})\.bin")


def is_state(name: str) -> bool:
    """Return whether a file called `name` contains duals or committed weights."""
    return _STATE_NAME.fullmatch(name) is not None


# -- model -----------------------------------------------------------------------------------------

MODEL_VERSION = 9
SUMS = "crc32"  # entry of model.json and run.json: maps each file of the folder to its CRC-32
MODEL = "model"
# Temporary files and folders that a crash may leave behind.
TEMPORARY = [f"{name}.tmp" for name in (RUN_JSON, COMMIT, REPORT, TUNING_JSON, TUNED)]
TEMPORARY += [f"{MODEL}.aside", f"{MODEL}.old"]
MODEL_JSON = "model.json"
DENSE, SPARSE, ROWS = "dense", "csr", "rows"  # layouts of the coefficients
COEF = "coef.npy"
COEF_ROWS = "coef-rows.npy"  # layout "rows": numbers of the features that have a row in COEF
FEATURES = "features.json"  # feature names, if there are any
TRANSITIONS = "transitions.npy"  # models of sequences only
MAX_TRANSFORM_ARRAYS = 17
TRANSFORM_ARRAYS = tuple(f"transform-{number}.npy" for number in range(MAX_TRANSFORM_ARRAYS))
COSTS = "costs.npy"  # costs of class pairs, if they were used in training
# Optional entries of model.json. MULTILABEL is also an entry of run.json.
STORED_DTYPE, TEMPERATURE, ANSWERED = "stored_dtype", "probability_temperature", "answered"
MULTILABEL = "multilabel"
SPARSE_COEF = {name: f"coef-{name}.npy" for name in ("data", "indices", "indptr")}


def transform_array(number: int) -> str:
    """Return the file name of the transform array `number`; raise `ValueError` if it is out of range."""
    if not 0 <= number < MAX_TRANSFORM_ARRAYS:
        raise ValueError(f"there are more than {MAX_TRANSFORM_ARRAYS} transform arrays")
    return TRANSFORM_ARRAYS[number]


_SURROGATES = re.compile("[\ud800-\udfff]")  # valid in JSON, but not in UTF-8


def are_labels(value: Any) -> bool:
    """Return whether a JSON value is a list of valid class labels."""
    return (
        isinstance(value, list)
        and all(isinstance(label, str) for label in value)
        and not _SURROGATES.search("".join(value))
    )


# -- JSON with a checksum of itself ----------------------------------------------------------------


def json_digest(record: dict[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of `record`, without its ``checksum`` entry."""
    bare = {key: value for key, value in record.items() if key != "checksum"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of `record` with its digest as the entry ``checksum``."""
    return {**record, "checksum": json_digest(record)}


def is_sealed(record: Any) -> bool:
    try:
        return isinstance(record, dict) and record.get("checksum") == json_digest(record)
    except (ValueError, RecursionError):  # NaN or excessive nesting, which sealed records never contain
        return False


def read_sealed(
    path: Path, error: type[StreamsvmError], remedy: Remedy | None = None, *, follow: bool = False
) -> dict[str, Any]:
    """Read a sealed JSON record; raise `error` if it is damaged, and `OSError` if it cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):  # not JSON
        record = durable.read_record(path, follow=follow)
        if is_sealed(record):
            return dict(record)
    raise error(f"{path} is damaged: its checksum does not match", remedy=remedy)
