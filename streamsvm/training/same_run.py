"""Compare an existing run with the run that a call of `fit` would start."""

from __future__ import annotations

import json
from typing import Any

from streamsvm.base import format
from streamsvm.errors import Call, Option, Remedy, RunError
from streamsvm.run.directory import RunDir
from streamsvm.settings.field import changes_of, declared
from streamsvm.settings.fit import Settings

# Entries that are compared separately, or not at all.
_COMPARED_SEPARATELY = ("version", "settings", "store", "plan", "valid_fingerprint", "checksum")
_DIFFERENCES = {
    "C_auto": "with C {}chosen from the data",
    "choice": "with transforms and loss {}chosen on a sample",
    "files": "with other files or reading settings",
    "transforms": "with other transforms",
    format.SUMS: "with other transforms",
    "error_weights": "with other contents of class_weight, costs or tree",
}


def read_same(run: RunDir, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a run. If it does not match `record`, raise `RunError` with the difference.

    The memory plan is not compared, because the run keeps its plan. The validation store is checked later.
    """
    old, new = run.read_settings(), json.loads(json.dumps(record))
    run.find_stores(old)
    other = Remedy("undo the change, or choose a new folder with {}", Option("out"))
    if old.get("kind") == format.ONLINE:
        remedy = Remedy("choose a new folder with {}", Option("out"))
        raise RunError(f"{run.path} was started by online", remedy=remedy)
    # Compare the data first, because a change of the data also changes an automatic C.
    if old["store"]["fingerprint"] != new["store"]["fingerprint"]:
        paths = ", ".join(new["store"]["path"])
        problem = f"{run.path} was started on different data from that in {paths} (the fingerprints differ)"
        raise RunError(problem, remedy=other)
    for name in declared(Settings):
        was, value = old["settings"].get(name), new["settings"][name]
        if was != value:
            if name in changes_of(Settings) and value is not None:
                remedy = Remedy("to change it, use {}", Call("resume", run.path, (Option(name, value),)))
            else:
                remedy = Remedy("use {}, or choose a new folder with {}", Option(name, was), Option("out"))
            if was is None:
                remedy = Remedy("leave {} out, or choose a new folder with {}", Option(name), Option("out"))
            raise RunError(f"{run.path} was started with {name} {was}, not {value}", remedy=remedy)
    for name in sorted((old.keys() | new.keys()) - set(_COMPARED_SEPARATELY)):
        if old.get(name) != new.get(name):
            text = _DIFFERENCES.get(name, f"with another {name}").format("" if old.get(name) else "not ")
            raise RunError(f"{run.path} was started {text}", remedy=other)
    return old
