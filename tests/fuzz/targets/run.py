"""A run directory: what `inspect` says of it, and `resume` on the store that it was made from."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import bundle, logs
from fuzz.workplace import allowed, folder
from helpers import make_problem, make_store

from streamsvm import Settings, fit, resume
from streamsvm.base import format
from streamsvm.errors import Interrupted, PlanError, RunError, StoreError
from streamsvm.info import inspect
from streamsvm.run.directory import identity
from streamsvm.store import open_store
from streamsvm.training.fit_plan import plan_fit
from streamsvm.training.spec import specify

SEAL, CRC, PLAN, RESUME = 1, 2, 4, 8  # flags: checksums of records, and of logs; a plan that fits
MAX_BYTES = 12_000
TOKENS = (b"weights_number", b"null", b"1e999", b"NaN", b"SSVMDUAL", b"[" * 60, b'{"a":' * 40)

mutate = bundle.mutate


def run(data: bytes) -> None:
    flags, files = bundle.unpack(data)
    if flags & SEAL:
        _seal(files, flags)
    path = folder("run") / "run"
    bundle.write_files(files, path)
    for verify in (False, True):
        with allowed(RunError, StoreError):
            inspect(path, verify=verify)
    if flags & RESUME and _is_short(files):
        blocks = 0

        def stop() -> bool:
            nonlocal blocks
            blocks += 1
            return blocks > 6

        with allowed(RunError, PlanError, StoreError, Interrupted), np.errstate(all="ignore"):
            resume(path, store=small_store(), stop=stop)


def _is_short(files: dict[str, bytes]) -> bool:
    """Whether the settings do not ask for long work, which is no fault."""
    with contextlib.suppress(Exception):
        inner_passes = json.loads(files["run.json"])["settings"].get("inner_passes")
        return not (isinstance(inner_passes, int | float) and inner_passes > 3)
    return True


def _seal(files: dict[str, bytes], flags: int) -> None:
    with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
        record = json.loads(files[format.RUN_JSON])
        if flags & PLAN:
            record["plan"] = _fitting_plan(record["settings"]) or record["plan"]
        files[format.RUN_JSON] = json.dumps(format.sealed(record)).encode()
    if flags & CRC:
        for name in files:
            if name.endswith(".bin"):
                files[name] = logs.with_checksums(files[name])
    for name, content in files.items():
        if name == format.RUN_JSON or not name.endswith(".json"):
            continue
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
            record = json.loads(content)
            with contextlib.suppress(Exception):
                record["run"] = identity(json.loads(files[format.RUN_JSON]))
                named = {format.log_name(format.WEIGHT_LOG, record["weights_number"]): record["weights"]}
                named |= {format.log_name(format.DUALS, int(p)): end for p, end in record["duals"].items()}
                for log, end in named.items():
                    end["digest"] = logs.digest(files[log], end["length"])
            files[name] = json.dumps(format.sealed(record)).encode()


def _fitting_plan(settings: dict[str, Any]) -> dict[str, Any] | None:
    """The plan of whatever settings are accepted."""
    with contextlib.suppress(Exception), open_store(small_store()) as store:
        return dataclasses.asdict(plan_fit(store, specify(Settings(**settings), store))[0])
    return None


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
        for name in ("weights.bin", "weights-dirty.bin"):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path / "model", ignore_errors=True)
        files = bundle.read_files(path)
        found += [bundle.pack(flags, files) for flags in (RESUME, 11, 15)]
    return found
