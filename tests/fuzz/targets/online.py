"""A run over text: what `inspect` says of it, and `resume` with the text that lies beside it."""

from __future__ import annotations

import contextlib
import functools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from fuzz import bundle, logs
from fuzz.targets.run import seal_commits
from fuzz.workplace import allowed, folder
from streamsvm_converters import TextSource

from streamsvm import load_model, online, resume
from streamsvm.base import format
from streamsvm.errors import InputError, Interrupted, PlanError, RunError, StoreError
from streamsvm.info import inspect
from streamsvm.run import growing_weights

SEAL, CRC, RESUME = 1, 2, 4  # flags: checksums of records, and of logs
HERE = "@/"  # in the run's inputs, the folder of the files
MAX_BYTES = 12_000
TOKENS = (b"place", b"null", b"1e999", b"NaN", b"SSVMWGTS", b"[" * 60, b"L2 3:1\n", b"@/", b"-", b"resumable")
growing_weights.LARGEST_FILE = 2**20  # to write a model of more is not hostile, only long

mutate = bundle.mutate


def run(data: bytes) -> None:
    flags, files = bundle.unpack(data)
    path = folder("online") / "run"
    _seal(files, flags, path)
    bundle.write_files(files, path)
    for verify in (False, True):
        with allowed(RunError, StoreError):
            inspect(path, verify=verify)
    if not flags & RESUME:
        return
    with allowed(RunError, StoreError, PlanError, InputError, Interrupted), np.errstate(all="ignore"):
        result = resume(path, open_stream=TextSource.from_record)
        model = load_model(path)
        assert (model.record["rows"], len(model.classes_)) == (result.rows, result.classes)
        assert model.n_features >= result.features or model.takes_any_feature
        json.dumps(result.input)


def _seal(files: dict[str, bytes], flags: int, path: Path) -> None:
    """Checksums, and the inputs where they are."""
    if flags & CRC:
        for name in files:
            if name.startswith("changes-"):
                files[name] = logs.with_checksums(files[name])
    if flags & SEAL:
        with contextlib.suppress(ValueError, RecursionError, TypeError, KeyError, AttributeError):
            record = json.loads(files[format.RUN_JSON])
            inputs = [str(each).replace(HERE, f"{path}/") for each in record["input"]["inputs"]]
            record["input"]["inputs"] = inputs
            files[format.RUN_JSON] = json.dumps(format.sealed(record)).encode()
        seal_commits(files)


def _stop_after(batches: int) -> dict[str, Any]:
    """Callbacks that stop a run once more batches than these were learned from.

    `stop` alone would not do: how often it is called while a run waits for rows depends on the machine.
    """
    learned: list[object] = []
    return {"progress": lambda *state: learned.append(state), "stop": lambda: len(learned) > batches}


@functools.cache
def seeds() -> list[bytes]:
    made = folder("online-seeds")
    lines = [f"L{i % (2 + i // 9)} {1 + i % 7}:{i / 8} {9 + i}:1" for i in range(40)]
    found = []
    for number, (learning, layout, count) in enumerate(
        [
            ({"C": 0.5}, {}, 2),
            ({"dtype": "float64", "loss": "cs"}, {"classes": ["L0", "L1"], "unseen_label": "keep"}, 3),
            ({}, {"resumable": False, "classes": ["L0", "L1", "L2"], "n_features": 20, "index_base": 1}, 2),
            ({"hash_bits": 3, "seed": 5}, {"on_error": "fix"}, 99),
        ]
    ):
        path = made / f"{number}"
        if "on_error" in layout:
            lines[20:20] = ["L1 oops", "L0 3:1 2:1"]
        layout = {"unseen_label": "keep", "memory": 2**16, "dtype": "float32"} | layout
        if "dtype" in learning:
            layout["dtype"] = learning["dtype"]
        (made / "text").write_text("\n".join(lines[:30]))
        (made / "text-2").write_text("\n".join(lines[30:]))

        with contextlib.suppress(Interrupted):
            stream = TextSource([made / "text", made / "text-2"], **layout)
            online(stream, out=path, checkpoint_every="1", **_stop_after(count), **learning)
        record: dict[str, Any] = json.loads((path / format.RUN_JSON).read_bytes())
        record["input"]["inputs"] = [f"{HERE}text", f"{HERE}text-2"]
        (path / format.RUN_JSON).write_text(json.dumps(record))
        for name in (format.WEIGHTS, format.AVERAGE_DELTA, format.DIRTY, format.LOCK, format.METRICS):
            (path / name).unlink(missing_ok=True)
        shutil.rmtree(path / format.MODEL, ignore_errors=True)
        for name in ("text", "text-2"):
            shutil.copy(made / name, path / name)
        files = bundle.read_files(path)
        found += [bundle.pack(flags, files) for flags in (SEAL | RESUME, SEAL | CRC | RESUME)]
    return found
