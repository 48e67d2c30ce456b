"""Costs of errors in a training: class weights, and margins and costs of pairs of classes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base import durable
from streamsvm.base.text import printable
from streamsvm.data.class_costs import ClassTree, read_costs, read_tree
from streamsvm.errors import InputError, Remedy, RunError, SettingsError, wrong_setting
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.losses import LOSSES, get_loss
from streamsvm.settings.fit import BALANCED, COSTS, MARGINS, Settings

_TREE_ARRAYS = ("node_of_class", "parent", "depth", "order", "begin", "end")  # of a ClassTree
_NO_NODES = np.zeros(0, np.int32)


@dataclasses.dataclass(frozen=True)
class TrainingCosts:
    """Class weights and costs of pairs of classes that a training has; None where all are 1.

    Attributes
    ----------
    class_weights : ndarray of float64, shape (k,), or None
        Factor of the cost of a row of each class or, if the loss has a dual of the own class, of the loss of
        this class alone: as LIBLINEAR's option ``-wi``.
    costs : ndarray of float64, shape (k, k), or None
        As `streamsvm.data.class_costs.read_costs` gives them.
    tree : ClassTree or None
    """

    class_weights: np.ndarray | None = None
    costs: np.ndarray | None = None
    tree: ClassTree | None = None

    def pairs(self, settings: Settings, columns: int) -> ClassPairs | None:
        """Return margins and costs in the form that kernels take, for weights of so many columns."""
        own_costs = self.class_weights if get_loss(settings.loss).own_dual else None
        if self.costs is None and self.tree is None and own_costs is None:
            return None
        dtype = np.dtype(settings.dtype)
        shifts, costs = np.zeros((0, columns), dtype), np.zeros((0, columns))
        if self.costs is not None:
            k = len(self.costs)
            table = self.costs.copy()
            np.fill_diagonal(table, 1.0)
            if settings.costs_as != COSTS:
                shifts = np.zeros((k, columns), dtype)
                with np.errstate(over="ignore"):
                    shifts[:, :k] = (table - 1.0) / settings.margin
                if not np.isfinite(shifts).all():
                    raise InputError(f"costs: {table.max():g} is too large a margin for {dtype}")
            if settings.costs_as != MARGINS:
                costs = np.ones((k, columns))
                costs[:, :k] = table
        own_costs = np.zeros(0) if own_costs is None else np.pad(own_costs, (0, columns - len(own_costs)))
        nodes = {name: getattr(self.tree, name, _NO_NODES) for name in _TREE_ARRAYS}
        return ClassPairs(shifts=shifts, costs=costs, own_costs=own_costs, **nodes)

    def row_factors(self, settings: Settings) -> np.ndarray | None:
        """Return the factor of each class by which the costs of its rows are multiplied, if there are any."""
        return None if get_loss(settings.loss).own_dual else self.class_weights

    def of_classes(self, codes: np.ndarray, classes: Sequence[str]) -> TrainingCosts:
        """Return the costs of some of the classes, by their codes and names."""
        tree = None if self.tree is None else ClassTree.from_record(self.tree.to_record(), classes)
        return TrainingCosts(
            None if self.class_weights is None else self.class_weights[codes],
            None if self.costs is None else self.costs[np.ix_(codes, codes)],
            tree,
        )

    def record(self) -> dict[str, Any]:
        """Return the entry of ``run.json``; the matrix is in a file of its own."""
        return {
            "class_weights": None if self.class_weights is None else self.class_weights.tolist(),
            "costs_sha256": None if self.costs is None else hashlib.sha256(_as_npy(self.costs)).hexdigest(),
            "tree": None if self.tree is None else self.tree.to_record(),
        }

    def model_entries(self, settings: Settings) -> dict[str, Any]:
        """Return the entries of ``model.json``; the matrix and the tree are in files of their own."""
        entries: dict[str, Any] = {}
        if self.class_weights is not None:
            entries["class_weights"] = self.class_weights.tolist()
        return entries if self.costs is None else {**entries, "costs_as": settings.costs_as}

    def save(self, path: Path) -> None:
        """Write the matrix, if there is one, to the file of a run."""
        if self.costs is not None:
            durable.write_atomic(path, _as_npy(self.costs))

    @classmethod
    def load(cls, record: Mapping[str, Any], path: Path, classes: Sequence[str]) -> TrainingCosts:
        """Read the costs of a run from its record and the file of its matrix.

        Raises `RunError` if they are not what `record` and `save` wrote.
        """
        weights, digest, tree = (record.get(name) for name in ("class_weights", "costs_sha256", "tree"))
        costs = None
        if digest is not None:
            with durable.os_errors_as(RunError, path, "read"), durable.open_file(path) as file:
                content = file.read()
            if hashlib.sha256(content).hexdigest() != digest:
                raise RunError(f"{path} is not the table of costs that this run was begun with")
        try:  # a run of others may have anything
            if digest is not None:
                costs = read_costs(np.load(io.BytesIO(content), allow_pickle=False), classes)
            weights = None if weights is None else np.array(weights, np.float64)
            if weights is not None and not (
                weights.shape == (len(classes),) and ((weights >= 0) & (weights < np.inf)).all()
            ):
                raise ValueError("weights of classes that are not")
            tree = None if tree is None else ClassTree.from_record(tree, classes, where="the run's tree")
        except (ValueError, TypeError, InputError) as error:
            raise RunError(f"{path.parent}: the costs are not valid: {error}; fit again") from None
        return cls(weights, costs, tree)


def _as_npy(table: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, table, allow_pickle=False)
    return buffer.getvalue()


def read_training_costs(
    settings: Settings, classes: Sequence[str], counts: np.ndarray, given: Mapping[str, Any]
) -> TrainingCosts:
    """Read the class weights, the cost matrix and the tree that the settings name.

    Parameters
    ----------
    settings : Settings
    classes : sequence of str, length k
    counts : ndarray of int64, shape (k,)
        Rows of each class.
    given : mapping
        ``costs`` and ``tree`` that are not files, by name.

    Raises
    ------
    InputError
        If a file cannot be read or does not fit the classes.
    """
    costs, tree = given.get("costs", settings.costs), given.get("tree", settings.tree)
    return TrainingCosts(
        _class_weights(settings.class_weight, classes, counts),
        None if costs is None else read_costs(costs, classes),
        None if tree is None else read_tree(tree, classes),
    )


def _class_weights(source: Any, classes: Sequence[str], counts: np.ndarray) -> np.ndarray | None:
    """Return the weight of each class: 1 for those that a file or mapping does not name."""
    if source is None:
        return None
    if source == BALANCED:
        occurs = counts > 0
        return np.where(occurs, counts.sum() / (occurs.sum() * np.maximum(counts, 1)), 1.0)
    entries = class_weight_entries(source)
    code, weights, seen = {name: c for c, name in enumerate(classes)}, np.ones(len(classes)), set()
    for where, name, weight in entries:
        if name not in code:
            raise InputError(
                f"{where}: {printable(name)!r:.60} is none of the {len(classes):,} classes",
                remedy=Remedy("leave it out, or spell it as in the data"),
            )
        if name in seen:
            raise InputError(f"{where}: the class {printable(name)!r:.60} comes twice")
        if not 0 <= weight < np.inf:
            raise InputError(
                f"{where}: the weight of the class {printable(name)!r:.60} is {weight}, and must be a number "
                "from 0 on"
            )
        seen.add(name)
        weights[code[name]] = weight
    if not (weights[counts > 0] > 0).any():
        raise InputError(f"{entries[0][0]}: no class that occurs in the data has a weight above 0")
    return weights


_Entries = list[tuple[str, str, float]]  # place for messages, class, weight


def class_weight_entries(source: Any) -> _Entries:
    """Return the weights that a file or a mapping has; raise `InputError` if they cannot be read."""
    is_file, entries = not isinstance(source, Mapping), []
    if is_file and not os.path.exists(source):
        raise wrong_setting("class_weight", f"must be {BALANCED} or the path of a file, and {source} is none")
    found = _lines(Path(source)) if is_file else (("class_weight", *item) for item in source.items())
    for where, name, weight in found:
        try:
            entries.append((where, str(name), float(weight)))
        except (TypeError, ValueError):
            remedy = Remedy("give a class and its weight in each line") if is_file else None
            raise InputError(f"{where}: {weight!r:.40} is not a number", remedy=remedy) from None
    if is_file and not entries:
        raise InputError(f"{source}: no class has a weight there; give a class and its weight in each line")
    return entries


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield the lines of a file: place for messages, class and weight, which white space separates."""
    try:
        with durable.open_file(path, follow=True) as file:
            lines = file.read().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise InputError(f"{path}: {durable.reason(error)}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, _, weight = line.strip().replace("\t", " ").rpartition(" ")
            yield f"{path}, line {number}", name.strip(), weight


def check_multilabel(settings: Settings, *, multilabel: bool, where: str) -> None:
    """Raise `SettingsError` if rows may have several labels, and the settings are for rows of one label.

    That depends on the loss, the solver and the costs. Errors call the data `where`.
    """
    if not multilabel:
        return
    loss = get_loss(settings.loss)
    if not loss.label_sets:
        able = ", ".join(name for name, other in LOSSES.items() if other.label_sets)
        raise SettingsError(
            f"the loss {loss.name} takes one label a row, and {where} has several; choose one of {able}",
            setting="loss",
        )
    if settings.solver != loss.solvers[0]:
        raise SettingsError(
            f"the solver {settings.solver} takes one label a row, and {where} has several; leave it out",
            setting="solver",
        )
    able = ", ".join(name for name, other in LOSSES.items() if other.own_dual)
    remedies = {"costs": "", "tree": "", "class_weight": f"choose one of {able}, or "}
    for name, other_loss in remedies.items():
        applies = name == "class_weight" and loss.own_dual
        if not applies and getattr(settings, name) is not None:
            raise SettingsError(
                f"{name} is for data of one label a row, and {where} has several",
                remedy=Remedy(f"{other_loss}give its rows weights"),
                setting=name,
            )
