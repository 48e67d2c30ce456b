"""Costs of errors in training: class weights, and margins between pairs of classes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base.text import format_size, printable
from streamsvm.data.class_costs import lines_of, read_costs, read_tree
from streamsvm.errors import InputError, ModelError, Option, PlanError, Remedy, RunError, SettingsError
from streamsvm.kernels.class_pairs import ClassPairs
from streamsvm.losses import get_loss, losses_with
from streamsvm.model.saved_files import SavedFiles, sum_of_array, write_array
from streamsvm.settings.fit import BALANCED, Settings


@dataclasses.dataclass(frozen=True)
class TrainingCosts:
    """Class weights, and costs of errors between pairs of classes. Each is None if all its values are 1.

    A class weight multiplies the cost of each row of the class, like LIBLINEAR's option ``-wi``. If the loss
    has a dual for the true class, the weight multiplies only the true class's part of the loss. `costs` is
    the table of margins between pairs of classes (see `streamsvm.data.class_costs`).
    """

    class_weights: np.ndarray | None = None  # float64, shape (k,)
    costs: np.ndarray | None = None  # float32, shape (k, k)

    def pairs(self, settings: Settings, columns: int) -> ClassPairs | None:
        """Return the margins and class weights in the form that kernels use, for `columns` weight columns."""
        own_costs = self.class_weights if get_loss(settings.loss).own_dual else None
        if self.costs is None and own_costs is None:
            return None
        margins = np.zeros((0, columns), np.float32)
        if self.costs is not None:
            margins = np.pad(self.costs, ((0, 0), (0, columns - len(self.costs))), constant_values=1.0)
            np.fill_diagonal(margins, 1.0)
        own_costs = np.zeros(0) if own_costs is None else np.pad(own_costs, (0, columns - len(own_costs)))
        return ClassPairs(margins, own_costs)

    def row_factors(self, settings: Settings) -> np.ndarray | None:
        """Return the factor of each class for the costs of its rows, shape (k,); None if all are 1."""
        return None if get_loss(settings.loss).own_dual else self.class_weights

    def of_classes(self, codes: np.ndarray) -> TrainingCosts:
        return TrainingCosts(
            None if self.class_weights is None else self.class_weights[codes],
            None if self.costs is None else self.costs[np.ix_(codes, codes)],
        )

    def record(self) -> dict[str, Any]:
        """Return the entry for ``run.json``. The table of costs is saved in a separate file."""
        return {
            "class_weights": None if self.class_weights is None else self.class_weights.tolist(),
            "costs_crc32": None if self.costs is None else sum_of_array(self.costs),
        }

    def save(self, path: Path) -> None:
        if self.costs is not None:
            write_array(path, self.costs)

    @classmethod
    def load(cls, record: Mapping[str, Any], path: Path, classes: Sequence[str]) -> TrainingCosts:
        """Load the costs of a run from its record and table file; raise `RunError` if they are invalid."""
        weights, crc, costs, k = record["class_weights"], record["costs_crc32"], None, len(classes)
        try:
            if crc is not None:
                costs = SavedFiles(path.parent, {path.name: crc}).array(path.name, (k, k), np.dtype("f4"))
            weights = None if weights is None else np.array(weights, np.float64).reshape(k)
        except (ValueError, ModelError) as error:
            raise RunError(f"the costs in {path.parent} are not valid: {error}; fit again") from None
        return cls(weights, costs)


def read_training_costs(
    settings: Settings, classes: Sequence[str], counts: np.ndarray, tables: Mapping[str, Any]
) -> TrainingCosts:
    """Read the class weights, and the costs of errors between pairs of classes from a table or a tree.

    `counts` is the number of rows of each class, and `tables` contains the values of ``costs`` or ``tree``
    that are not files. Raises `InputError` if a file cannot be read or does not match the classes, and
    `PlanError` if the table does not fit into memory.
    """
    weights = _class_weights(settings.class_weight, classes, counts)
    if not settings.has_pair_margins:
        return TrainingCosts(weights)
    needed = 8 * len(classes) ** 2  # one copy here, another for the kernels
    if needed > settings.memory:
        raise PlanError(
            f"the margins of all pairs of {len(classes):,} classes take {format_size(needed)}, but "
            f"the memory budget is {format_size(settings.memory)}",
            remedy=Remedy("use {} or more", Option("memory", needed)),
            needed_memory=needed,
        )
    name, read = ("costs", read_costs) if settings.tree is None else ("tree", read_tree)
    return TrainingCosts(weights, read(tables.get(name, getattr(settings, name)), classes))


def _class_weights(source: Any, classes: Sequence[str], counts: np.ndarray) -> np.ndarray | None:
    """Return the weight of each class, which is 1 if a file or mapping does not name the class."""
    if source is None:
        return None
    if source == BALANCED:
        occurs = counts > 0
        return np.where(occurs, counts.sum() / (occurs.sum() * np.maximum(counts, 1)), 1.0)
    is_file = not isinstance(source, Mapping)
    where = str(source) if is_file else "class_weight"
    entries = _lines(source) if is_file else ((where, str(name), each) for name, each in source.items())
    code, weights, seen = {name: c for c, name in enumerate(classes)}, np.ones(len(classes)), set()
    for place, name, value in entries:
        try:
            weight = float(value)
        except (TypeError, ValueError):
            weight = np.nan
        problem = None
        if name not in code:
            problem = f"is not one of the {len(classes):,} classes"
        elif name in seen:
            problem = "appears twice"
        elif not 0 <= weight < np.inf:
            problem = f"has the weight {value!r:.40}, which is not a number >= 0"
        if problem is not None:
            raise InputError(f"{place}: the class {printable(name)!r:.60} {problem}")
        seen.add(name)
        weights[code[name]] = weight
    if (is_file and not seen) or not (weights[counts > 0] > 0).any():
        raise InputError(f"{where}: no class that occurs in the data has a weight above 0")
    return weights


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (place for messages, class, weight) from each line, which is split at its last space."""
    for where, line in lines_of(path):
        name, _, weight = line.replace("\t", " ").rpartition(" ")
        yield where, name.strip(), weight


def check_multilabel(settings: Settings, *, multilabel: bool, where: str) -> None:
    """Raise `SettingsError` if the data called `where` is multilabel, but a setting requires one label."""
    loss = get_loss(settings.loss)
    weighs_classes = settings.class_weight is not None and not loss.own_dual
    checks = (
        (not loss.label_sets, "loss", f"choose one of {losses_with('label_sets')}"),
        (settings.solver != loss.solvers[0], "solver", "leave it out"),
        (settings.costs is not None, "costs", "use row weights"),
        (settings.tree is not None, "tree", "use row weights"),
        (weighs_classes, "class_weight", "use row weights"),
    )
    for is_wrong, name, advice in checks:
        if multilabel and is_wrong:
            problem = f"this {name} requires one label per row, but {where} has several; {advice}"
            raise SettingsError(problem, setting=name)
