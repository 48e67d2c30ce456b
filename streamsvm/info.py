"""Describe and verify data, runs and models."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamsvm.base import durable, format
from streamsvm.base.converters import converters
from streamsvm.errors import RunError, StreamsvmError

_SHOWN_CLASSES, _SHOWN_FEATURES = 8, 5
_READ_ATTEMPTS = 20  # a training process may replace commits during an attempt


def inspect(
    path: str | Path,
    *,
    verify: bool = False,
    label: str | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> dict[str, Any]:
    """Describe data, a run or a model.

    Unless `verify` is True, only text, tables, sparse or compressed ``.npz`` files, and CSC matrices with
    `label` are read completely. The matrices must fit into a quarter of the free memory.

    Parameters
    ----------
    path : path
    verify : bool
        Whether to read everything and verify every checksum. Models are always verified.
    label : str, optional
        Column that contains the labels of a table, or of AnnData not written by `convert`. Only the rows that
        `streamsvm.fit` would train on are then described.
    progress : callable, optional
        Function called with a stage, the number of units done, and the total.

    Returns
    -------
    dict
        ``kind`` ("store", "run", "model" or a kind of file), and entries that depend on the kind. For data,
        they include the number of rows ``n`` and, if known, the number of features ``d``, ``nnz``,
        ``classes`` and ``columns``. For a run, ``result`` contains accuracies, gap, seconds and data sizes.

    Raises
    ------
    StreamsvmError
        If `path` is damaged or its kind is unknown; the message names the array and chunk, or the file.
    """
    from streamsvm.store.kinds import TABLES, TITLES, kind_of

    path = Path(path)
    if any((path / name).exists() for name in (format.RUN_JSON, format.LOCK)):
        return _run(path, verify, progress)
    if (path / format.MODEL_JSON).exists():
        return _model(path)
    kind = kind_of(path)
    if kind == "libsvm" or kind in TABLES:
        return {"kind": TITLES[kind], **converters().describe(path, kind, label, progress)}
    return _store(path, TITLES[kind], verify, label, progress)


def _store(
    path: Path,
    title: str,
    verify: bool,
    label: str | None,
    progress: Callable[[str, int, int | None], None] | None,
) -> dict[str, Any]:
    from streamsvm.data.memory_plan import available_memory
    from streamsvm.store import open_store
    from streamsvm.store.obs_columns import column_names
    from streamsvm.store.open import open_existing

    memory = available_memory() // 2  # for loading a matrix that cannot be read by rows
    with contextlib.closing(open_existing(path, memory)) as container:
        native = container.record(format.STORE_ATTR) is not None
        is_anndata = not native and container.node("obs") is not None
        columns = column_names(container, "obs") if is_anndata else None
    if is_anndata and not verify and label is None:
        memory = 0  # the headers of a CSC matrix suffice for its description
    with open_store(path, label=label, labelled=native or label is not None, memory=memory) as store:
        verified: bool | str = verify
        if verify:
            store.verify(lambda done, total: progress and progress("verify", done, total))
            if any(array.container.has_gaps for array in store.arrays.values()):
                verified = "only the chunks that are there"
        weights = store.meta.get("weight_range", (0, 0))
        return {
            "kind": "store" if native else title,
            "container": store.kind,
            "n": store.n_rows,
            "d": store.n_features,
            "nnz": store.nnz,
            "n_classes": store.n_classes or None,
            "classes": list(store.classes),
            "columns": columns,
            "dense": True if store.dense_rows else None,
            "dtype": store.meta.get("dtype", str(store.dtype)),
            "index_base": store.index_base,
            "shuffled": store.shuffled if native else None,
            "weights": "from {:g} to {:g}".format(*weights) if store.weighted else None,
            "labels_per_row": store.n_labels / max(store.n_rows, 1) if store.multilabel else None,
            "groups": store.meta.get("n_groups"),
            "chunk_nnz": store.chunk_nnz,
            "fingerprint": store.fingerprint if native else None,
            "sources": store.meta.get("sources", []),
            "verified": verified,
        }


def _run(path: Path, verify: bool, progress: Callable[[str, int, int | None], None] | None) -> dict[str, Any]:
    from streamsvm.run.directory import RunDir

    run = RunDir(path)
    for _ in range(_READ_ATTEMPTS):
        identities = [durable.file_identity(path) for path in (run.commit, run.settings)]
        description = _describe_run(run, verify)
        if not description["damage"] or identities == [
            durable.file_identity(path) for path in (run.commit, run.settings)
        ]:
            break
    else:
        raise RunError(
            f"{path}: another process is training this run and replaces commits before they can be checked; "
            "try again when it has stopped, or train with less frequent commits"
        )
    damage = description["damage"]
    for store in run.stores() if verify else ():
        try:
            if store.exists():
                inspect(store, verify=True, progress=progress)
        except StreamsvmError as error:
            damage.append(error.message)
    if damage and verify:
        raise RunError(damage[0] if len(damage) == 1 else "; ".join(damage))
    return description


def _describe_run(run: Any, verify: bool) -> dict[str, Any]:
    from streamsvm.kernels.tally import VISITED
    from streamsvm.model.model import load_model
    from streamsvm.model.serialization import saved_record
    from streamsvm.reporting.history import achieved, read_history
    from streamsvm.run.directory import names_of_files
    from streamsvm.run.manifest import read_commit

    record = run.read_settings()
    online = record.get("kind") == format.ONLINE
    commits: list[str] = []
    damage: list[str] = []
    learned: dict[str, int] = {}  # rows at the commit of an online run; reports lag behind
    if run.has_commit:
        try:
            position = read_commit(run, verify=verify)
            is_whole = run.metrics.exists() and durable.size(run.metrics) >= position.metrics_length
            if not is_whole:
                damage.append(f"{run.metrics} is truncated")
            if online:
                learned = {"rows": int(position.tally[VISITED])}
                commits.append(f"{learned['rows']} rows done")
            else:
                commits.append(f"{position.passes_done} passes and {position.blocks_done} blocks done")
        except RunError as error:
            damage.append(error.message)
        except OSError as error:
            damage.append(f"{error.filename} cannot be read: {durable.reason(error)}")
    finished = run.model.exists()
    if finished and verify:
        try:
            load_model(run.path)
        except StreamsvmError as error:
            damage.append(error.message)
    model = saved_record(run.model)
    sizes = {name: record.get("store", {}).get(f"n_{name}") for name in ("classes", "features")}
    result = {
        **achieved(read_history(run.path), model),
        **{name: n for name, n in sizes.items() if n is not None},
        **learned,
    }
    return {
        "kind": "run",
        **({"input": record["input"]} if online else {"store": record["store"]["path"]}),
        "result": result,
        "files": names_of_files(record),
        "settings": record["settings"],
        "commits": commits,
        "damage": damage,
        "model": finished,
        "averaged": bool(model.get("average")) if finished else None,
        "C": model.get("C", record["settings"]["C"]),
        "C_auto": bool(record.get("C_auto", model.get("C_auto"))),
        "tuned": run.tuning.exists(),
        "data_fingerprint": record.get("store", {}).get("fingerprint"),
        "valid_fingerprint": record.get("valid_fingerprint"),
        format.TEMPERATURE: model.get(format.TEMPERATURE),
        "verified": verify,
    }


def _model(path: Path) -> dict[str, Any]:
    from streamsvm.model.model import load_model
    from streamsvm.model.strongest import strongest_features

    model = load_model(path)
    shown = model.record["classes"][:_SHOWN_CLASSES]
    strongest = strongest_features(model, _SHOWN_FEATURES, slice(0, len(shown)))
    return {
        "kind": "model",
        "n_classes": len(model.classes_),
        **model.record,
        "strongest_features": dict(zip(shown, strongest, strict=True)),
        "verified": True,
    }
