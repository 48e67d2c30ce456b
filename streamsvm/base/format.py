"""Names, dtypes and versions of everything on disk: the only place that knows them."""

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
STORE_ATTR = "streamsvm"  # our root attribute, beside anndata's
CHUNK_NNZ = 2**18  # values a chunk: large enough to amortise a read, small enough to cut blocks

INDPTR_DTYPE = np.dtype(np.int64)
LABEL_DTYPE = np.dtype(np.int32)
NORM2_DTYPE = np.dtype(np.float64)
WEIGHT_DTYPE = np.dtype(np.float64)
QID_DTYPE = np.dtype(np.int64)
UNSEEN_LABEL = -1


def index_dtype(n_features: int) -> np.dtype:
    """Return int32 if the numbers of all features fit, else int64."""
    return np.dtype(np.int32 if n_features <= np.iinfo(np.int32).max else np.int64)


# -- run directory ---------------------------------------------------------------------------------

RUN_VERSION = 17  # 1 to 16 were never released
RUN_JSON = "run.json"
ANNDATA = "anndata"  # entry of the record of a store with X or a layer of AnnData
ONLINE = "online"  # the kind of a run over a stream; a fit has none
WEIGHTS = "weights.bin"
AVERAGE_DELTA = "weights-avg.bin"
SPARSE_WEIGHTS = "weights-sparse.bin"
RUN_COSTS = "class-costs.npy"
COMMIT = "commit.json"
METRICS = "metrics.jsonl"
LOCK = "lock"
BASE = "from"  # a copy of the model that a run goes on from
RUN_DATA = "data.zarr"  # a store that the run made of other files
CACHE = "cache"  # copies of what is at addresses
TUNING_JSON, TUNED, TRIALS = "tune.json", "tune.jsonl", "tune"
REPLACED = "replaced"  # marks a run that another one has moved aside
REPORT = "report.html"
# Files of duals, by pass, first row and part; weights of commits, numbered from 1.
DUALS, COMMITTED = "duals", "committed"
_NUMBER = "-[0-9]{1,18}"
_STATE_NAME = re.compile(rf"({DUALS}{_NUMBER}{_NUMBER}{_NUMBER}|{COMMITTED}{_NUMBER})\.bin")


def is_state(name: str) -> bool:
    """Return True if a file of duals or weights has this name."""
    return _STATE_NAME.fullmatch(name) is not None


# -- model -----------------------------------------------------------------------------------------

MODEL_VERSION = 9
SUMS = "crc32"  # entry of model.json and run.json: the CRC-32 of each file beside it, by name
MODEL = "model"
# What a crash may leave of a file or folder that is replaced as a whole.
TEMPORARY = [f"{name}.tmp" for name in (RUN_JSON, COMMIT, REPORT, TUNING_JSON, TUNED)]
TEMPORARY += [f"{MODEL}.aside", f"{MODEL}.old"]
MODEL_JSON = "model.json"
DENSE, SPARSE, ROWS = "dense", "csr", "rows"  # layouts of the coefficients
COEF = "coef.npy"
STORED_DTYPE = "stored_dtype"  # optional entry of model.json: "float16"
COEF_ROWS = "coef-rows.npy"  # of the layout "rows": the features that COEF has a row for
FEATURES = "features.json"  # their names, where they have any
TRANSITIONS = "transitions.npy"  # of a model of sequences
MAX_TRANSFORM_ARRAYS = 17
TRANSFORM_ARRAYS = tuple(f"transform-{number}.npy" for number in range(MAX_TRANSFORM_ARRAYS))
COSTS = "costs.npy"  # of pairs of classes, where the training had them
TEMPERATURE = "probability_temperature"  # optional entry of model.json
ANSWERED = "answered"  # optional entry of model.json, beside the temperature
MULTILABEL = "multilabel"  # optional entry of model.json and run.json
SPARSE_COEF = {name: f"coef-{name}.npy" for name in ("data", "indices", "indptr")}


def transform_array(number: int) -> str:
    """Return the file name of the array of transform `number`; raise `ValueError` if it is out of range."""
    if not 0 <= number < MAX_TRANSFORM_ARRAYS:
        raise ValueError(f"there are more than {MAX_TRANSFORM_ARRAYS} of them")
    return TRANSFORM_ARRAYS[number]


_SURROGATES = re.compile("[\ud800-\udfff]")  # JSON can spell them; no text has them


def are_labels(value: Any) -> bool:
    """Return True if a value from JSON is a list of texts that classes may have."""
    return (
        isinstance(value, list)
        and all(isinstance(label, str) for label in value)
        and not _SURROGATES.search("".join(value))
    )


# -- JSON that can tell when it was altered --------------------------------------------------------


def json_digest(record: dict[str, Any]) -> str:
    """Return the SHA-256 of the canonical JSON of `record` without its ``checksum`` entry."""
    bare = {key: value for key, value in record.items() if key != "checksum"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """Return `record` with its own digest as ``checksum``."""
    return {**record, "checksum": json_digest(record)}


def is_sealed(record: Any) -> bool:
    """Return True if `record` is a dict whose ``checksum`` is its own digest."""
    try:
        return isinstance(record, dict) and record.get("checksum") == json_digest(record)
    except (ValueError, RecursionError):  # NaN, or nested without end: nothing that was ever sealed
        return False


def read_sealed(
    path: Path, error: type[StreamsvmError], remedy: Remedy | None = None, *, follow: bool = False
) -> dict[str, Any]:
    """Return the record in a JSON file; raise `error` if it is damaged, `OSError` if it cannot be read."""
    with contextlib.suppress(ValueError, RecursionError):  # not JSON
        record = durable.read_record(path, follow=follow)
        if is_sealed(record):
            return dict(record)
    raise error(f"{path} is damaged: its checksum does not match", remedy=remedy)
