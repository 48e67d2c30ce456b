"""What a path holds, in words and numbers, and whether it is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsvm import durable, format
from streamsvm.errors import RunError, StreamsvmError

_LOOKS = 20  # at a run that another process trains meanwhile, until a commit stays for as long as it is read


def inspect(
    path: str | Path,
    *,
    verify: bool = False,
    label: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Any]:
    """Describe the store, run or model at `path`.

    Parameters
    ----------
    path : path
    verify : bool
        Read all of it and check every checksum. A model is always checked.
    label : str, optional
        Column of ``obs`` with the labels, for AnnData that `streamsvm convert` did not write.
    progress : callable, optional
        Called with a stage, units done, and units in all.

    Returns
    -------
    dict
        ``kind`` ("store", "run" or "model") and what there is to say of it.

    Raises
    ------
    StreamsvmError
        If it is none of these, or damaged: says which array and chunk, or which file.
    """
    path = Path(path)
    if (path / format.RUN_JSON).exists():
        return _run(path, verify)
    if (path / format.MODEL_JSON).exists():
        return _model(path)
    return _store(path, verify, label, progress)


def _store(
    path: Path, verify: bool, label: str | None, progress: Callable[[str, int, int], None] | None
) -> dict[str, Any]:
    from streamsvm.store import open_store

    with open_store(path, label=label) as store:
        if verify:
            store.verify(lambda done, total: progress and progress("verify", done, total))
        return {
            "kind": "store",
            "container": store.kind,
            "n": store.n_rows,
            "d": store.n_features,
            "nnz": store.nnz,
            "n_classes": store.n_classes,
            "classes": list(store.classes),
            "dtype": str(store.dtype),
            "index_base": store.index_base,
            "shuffled": store.shuffled,
            "chunk_nnz": store.chunk_nnz,
            "fingerprint": store.fingerprint,
            "sources": store.meta.get("sources", []),
            "verified": verify,
        }


def _run(path: Path, verify: bool) -> dict[str, Any]:
    """Look at a run until nothing that was missed was deleted, or made anew, meanwhile."""
    for _ in range(_LOOKS):
        found, damage, moved = _look(path, verify)
        if not moved:
            break
    else:
        raise RunError(
            f"{path}: another process trains this run, and its commits change before they can be checked; "
            "look again when it has stopped, or let it commit less often (--checkpoint-every)"
        )
    if damage and verify:
        raise RunError("; ".join(damage))
    return found


def _look(path: Path, verify: bool) -> tuple[dict[str, Any], list[str], bool]:
    """What there is to say of a run, what is damaged, and whether it changed before there was anything."""
    from streamsvm.kernels.tally import VISITED
    from streamsvm.model import load_model
    from streamsvm.run.checkpoint import metrics_size, read_commit
    from streamsvm.run.directory import RunDir

    run = RunDir(path)
    begun = durable.mark(run.settings)
    record = run.read_settings()
    online = record.get("kind") == format.ONLINE
    commits: list[str] = []
    damage: list[str] = []
    gone = False
    for number in run.commits():
        manifest = run.commit_path(number) / format.MANIFEST
        before = durable.mark(manifest)
        try:
            position = read_commit(run, run.commit_path(number), verify=verify)
            if not commits and metrics_size(run) < position.metrics_length:
                damage.append(f"{run.metrics} is cut short")
            if online:
                commits.append(f"{int(position.tally[VISITED])} rows done")
            else:
                commits.append(f"{position.passes_done} passes and {position.blocks_done} blocks done")
        except (RunError, OSError) as error:
            if durable.mark(manifest) != before:  # a newer commit took its place: no damage
                gone = True
            elif isinstance(error, RunError):
                damage.append(str(error))
            else:
                damage.append(f"{error.filename} cannot be read: {durable.reason(error)}")
    finished = run.model.exists()
    if finished and verify:
        try:
            load_model(path)
        except StreamsvmError as error:
            damage.append(str(error))
    moved = (gone and not commits) or durable.mark(run.settings) != begun
    found = {
        "kind": "run",
        **({"input": record["input"]} if online else {"store": record["store"]["path"]}),
        "settings": record["settings"],
        "commits": commits,
        "damage": damage,
        "model": finished,
        "verified": verify,
    }
    return found, damage, moved


def _model(path: Path) -> dict[str, Any]:
    from streamsvm.model import load_model

    model = load_model(path)
    return {"kind": "model", "n_classes": len(model.classes_), **model.record, "verified": True}
