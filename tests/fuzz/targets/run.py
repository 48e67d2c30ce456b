"""A run directory: what `inspect` says of it, and `resume` on the store that it was made from."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from pathlib import Path

import google_crc32c
import numpy as np
from fuzz import bundle
from fuzz.workplace import allowed, folder
from helpers import make_problem, make_store
from helpers import plain_fit as fit

from streamsvm import resume
from streamsvm.base import format
from streamsvm.errors import Interrupted, PlanError, RunError, StoreError
from streamsvm.info import inspect

CRC, RESUME = 2, 8  # flags: checksums of files in the manifest
MAX_BYTES = 12_000
TOKENS = (b"[" * 60, b'{"a":' * 40)

mutate = bundle.mutate


def run(data: bytes) -> None:
    flags, files = bundle.unpack(data)
    if flags & CRC:
        _fit_sums(files)
    path = folder("run") / "run"
    bundle.write_files(files, path)
    for verify in (False, True):
        with allowed(RunError, StoreError):
            inspect(path, verify=verify)
    if flags & RESUME:
        blocks = 0

        def stop() -> bool:
            nonlocal blocks
            blocks += 1
            return blocks > 6

        with allowed(RunError, PlanError, StoreError, Interrupted), np.errstate(all="ignore"):
            resume(path, store=small_store(), stop=stop)


def _fit_sums(files: dict[str, bytes]) -> None:
    """Make the checksums in a manifest that is whole those of the files."""

    def summed(name: str) -> dict[str, int]:
        return {"length": len(files[name]), "crc32c": google_crc32c.value(files[name])}

    with contextlib.suppress(ValueError, RecursionError, KeyError):
        record = json.loads(files[format.COMMIT])
        if format.is_sealed(record):
            record["weights"] = summed(f"{format.COMMITTED}-{record['weights_number']}.bin")
            for p, kept in record["duals"].items():
                for file in kept:
                    file["sum"] = summed(f"{format.DUALS}-{p}-{file['first']}-{file['part']}.bin")
            files[format.COMMIT] = json.dumps(format.sealed(record)).encode()


@functools.cache
def small_store() -> Path:
    X, labels = make_problem(10, 3, 3)
    return make_store(folder("run-store") / "s.h5", X, labels, dtype="float32")


@functools.cache
def seeds() -> list[bytes]:
    found = []
    for number, (options, count) in enumerate(
        [
            ({"passes": 2, "average": False}, 3),
            ({"passes": 2, "average": True, "inner_passes": 0}, 5),
            ({"passes": 3, "tol": 0.5, "loss": "cs", "average": False, "dtype": "float64"}, 20),
        ]
    ):
        path, left = folder("run-seeds") / f"{number}", count

        def stop() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        with contextlib.suppress(Interrupted):
            fit(small_store(), out=path, C=0.1, block_rows=4, checkpoint_every="1", stop=stop, **options)
        record = json.loads((path / "run.json").read_bytes())
        record["store"]["path"] = "s.h5"
        (path / "run.json").write_text(json.dumps(format.sealed(record)))
        (path / "weights.bin").unlink(missing_ok=True)
        shutil.rmtree(path / "model", ignore_errors=True)
        files = bundle.read_files(path)
        found += [bundle.pack(flags, files) for flags in (RESUME, RESUME | CRC)]
        for name in (name for name in files if name.endswith(".bin")):
            content = files[name]
            for at in (0, 8, 16, 24, len(content) // 2):
                forged = files | {name: content[:at] + b"\xff" * (len(content) - at)}
                found.append(bundle.pack(RESUME | CRC, forged))
    return found
