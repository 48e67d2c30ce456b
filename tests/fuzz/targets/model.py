"""A model folder: `load_model`, then predictions on data that fits it."""

from __future__ import annotations

import contextlib
import functools
import json
import unittest.mock
import zlib
from pathlib import Path

import numpy as np
from fuzz import bundle
from fuzz.workplace import allowed, folder
from helpers import read_rows, save_weights

from streamsvm import load_model
from streamsvm.base import format
from streamsvm.errors import InputError, ModelError
from streamsvm.info import inspect
from streamsvm.model import coefficients
from streamsvm.transforms import apply

SEAL, CRC = 1, 2  # flags: make the record's checksum right, and those of the other files
MAX_BYTES = 2000
MOST_FEATURES = 2**16
TOKENS = (b"NUMPY", b"'descr': '<f4'", b"'fortran_order': False", b"'shape': (3, 2)", b"null", b"1e999")

mutate = bundle.mutate


def run(data: bytes) -> None:
    flags, files = bundle.unpack(data)
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(files.get("model.json", b""))
        if isinstance(record, dict):
            if flags & CRC:
                record[format.SUMS] = {
                    name: zlib.crc32(content) for name, content in files.items() if name != "model.json"
                }
            if flags & SEAL:
                files["model.json"] = json.dumps(format.sealed(record)).encode()
    path = folder("model") / "model"
    bundle.write_files(files, path)
    with allowed(ModelError):
        _use(path)


def _use(path: Path) -> None:
    model = load_model(path)
    if model.n_features > MOST_FEATURES:  # of rows in use there may be any number
        return
    inspect(path)
    d, k = model.coef_.T.shape
    assert model.classes_.shape == (k,)
    X = np.ones((2, d), model.coef_.dtype)
    with np.errstate(all="ignore"):
        scores = model.decision_function(X)
        labels = model.predict(X)
    assert scores.shape == (2, k)
    assert set(labels.tolist()) <= set(model.classes_.tolist())
    text = path / "data.svm"
    text.write_bytes(b"a 1:1\n")
    base = model.record["index_base"]
    if base is not None:
        options = {"classes": model.record["classes"], "dtype": model.record["dtype"], "index_base": base}
        options["n_features"] = None if model.takes_any_feature else d
        with allowed(InputError):  # an index 0
            for rows, _ in read_rows([text], memory=2**16, **options):
                list(model.scores(apply(model.transforms, rows)))


@functools.cache
def seeds() -> list[bytes]:
    found = []
    for dtype in ("float32", "float64"):
        made = folder("model-seeds") / dtype
        record = {"classes": ["a", "b", "ä"], "n_features": 2, "index_base": 1, "dtype": dtype}
        record |= {"loss": "ww", "C": 1.0, "store_fingerprint": "0"}
        weights = np.arange(128, dtype=dtype).reshape(8, 16)
        save_weights(made, weights[:2], record)
        files = bundle.read_files(made)
        hashed = {"transforms": [{"name": "hash", "bits": 3, "seed": 7}]}
        save_weights(made, weights, record | {"n_features": 8} | hashed)
        found += [bundle.pack(SEAL | CRC, bundle.read_files(made))]
        found += [bundle.pack(flags, files) for flags in (0, SEAL, SEAL | CRC)]
        with unittest.mock.patch.multiple(coefficients, _MIN_SPARSE_CLASSES=2, _MAX_SPARSE_SHARE=99.0):
            save_weights(made, weights[:2] % 3, record)
        found += [bundle.pack(flags, bundle.read_files(made)) for flags in (0, SEAL, SEAL | CRC)]
        with unittest.mock.patch.object(coefficients, "_MIN_SAVED_BYTES", 0):
            save_weights(made, weights * (np.arange(8) % 4 == 2)[:, None], record | {"n_features": 8})
        found += [bundle.pack(flags, bundle.read_files(made)) for flags in (0, SEAL, SEAL | CRC)]
    return found
