"""A Zarr store of ours: open it, read all of it, verify it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from pathlib import Path

import google_crc32c
import numpy as np
from fuzz import bundle
from fuzz.workplace import allowed, folder
from helpers import make_problem, make_store

from streamsvm.base import format
from streamsvm.data.memory_plan import cut_blocks, make_plan
from streamsvm.errors import PlanError, StoreError
from streamsvm.store import Store, layout, open_store

# Flags: the record fits the metadata, and its checksum; chunks have theirs.
SEAL, CRC = 1, 2
MAX_BYTES = 16_000
TOKENS = (b'"vlen-utf8"', b'"blosc"', b"null", b"NaN")
MOST_ROWS = 3000

mutate = bundle.mutate


def run(data: bytes) -> None:
    flags, files = bundle.unpack(data)
    if flags & CRC:
        for name, content in files.items():
            if ("/c/" in name or name.startswith("X/c.")) and len(content) >= 4:
                files[name] = content[:-4] + google_crc32c.value(content[:-4]).to_bytes(4, "little")
    if flags & SEAL:
        with contextlib.suppress(Exception):  # a record too odd to be made right
            files["zarr.json"] = _sealed(files)
    path = folder("zarr") / "s.zarr"
    bundle.write_files(files, path)
    read_all(path)


def read_all(path: Path) -> None:
    """Open a store and read it in every way; what comes out must be what compiled code relies on."""
    with allowed(StoreError, PlanError), open_store(path) as store:
        n = store.n_rows
        for start, stop in ((0, min(n, MOST_ROWS)), (max(0, n - 2), n), (n // 2, min(n, n // 2 + 3))):
            with allowed(StoreError):
                check_rows(store, start, stop)
        with allowed(StoreError):
            store.names(0, min(n, 3))
        with allowed(StoreError):
            assert store.class_counts.shape == (store.n_classes,)
        with allowed(StoreError, PlanError):
            plan = make_plan(store, dtype=np.dtype("f4"), columns=16, memory=2**20, keeps_duals=True)
            starts = cut_blocks(store, plan)
            assert starts[-1] == n
        store.verify()


def check_rows(store: Store, start: int, stop: int) -> None:
    rows = store.rows(start, stop)
    assert rows.indptr.shape == (stop - start + 1,)
    assert rows.indptr[0] == 0
    assert rows.indptr[-1] == len(rows.data)
    assert rows.labels.shape == rows.norm2.shape == (stop - start,)
    assert np.isfinite(rows.data).all()
    assert np.isfinite(rows.norm2).all()
    assert ((rows.labels >= -1) & (rows.labels < store.n_classes)).all()
    assert all(array.flags.c_contiguous and array.dtype.isnative for array in rows if array is not None)
    assert rows.data.dtype in (np.float32, np.float64)
    if rows.dense:
        assert rows.indptr.tolist() == [row * store.n_features for row in range(stop - start + 1)]
        return
    assert len(rows.indices) == len(rows.data)
    for row in range(stop - start):
        lo, hi = rows.indptr[row : row + 2].tolist()
        assert lo <= hi
        indices = rows.indices[lo:hi].tolist()
        assert not indices or 0 <= indices[0] <= indices[-1] < store.n_features
        assert all(left < right for left, right in itertools.pairwise(indices))


def _sealed(files: dict[str, bytes]) -> bytes:
    root = json.loads(files["zarr.json"])
    record = root["attributes"][format.STORE_ATTR]
    digests = record["arrays"]
    header = {key: record.get(key) for key in ("n", "d", "dtype")} | {"classes": digests[layout.CATEGORIES]}
    values = (layout.MATRIX,) if record["dense"] else (layout.DATA, layout.INDICES, layout.INDPTR)
    hashed = (*values, layout.CODES, layout.NAMES)
    record["fingerprint"] = format.json_digest(
        {"header": header, "arrays": {name: digests[name] for name in hashed}}
    )
    root["attributes"][format.STORE_ATTR] = format.sealed(record)
    return json.dumps(root).encode()


@functools.cache
def seeds() -> list[bytes]:
    X, labels = make_problem(8, 5, 3)
    made = make_store(folder("zarr-seeds") / "s.zarr", X, labels, dtype="float32", chunk_nnz=16)
    files = bundle.read_files(made)
    found = [bundle.pack(flags, files) for flags in (0, SEAL, SEAL | CRC)]
    dense = make_store(folder("zarr-seeds") / "d.zarr", X, labels, dtype="float16", chunk_nnz=16, dense=True)
    files = bundle.read_files(dense)
    return found + [bundle.pack(flags, files) for flags in (0, SEAL, SEAL | CRC)]
