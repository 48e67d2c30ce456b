"""What a loss states of itself: facts that settings and plans ask for, and kernels that train it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from streamsvm.kernels.frame import Kernels


FILLING = ("bcpl", "oeg")  # block solvers that make all duals of a chain positive
# Of chains of tokens, the default first.
ON_CHAINS = ("cached", "bcfw", "bcpl", "oeg")
MOST_SEQUENCES = 128  # that `cached` keeps of a chain: more would make room for the better ones
ROUNDS = 2  # of `cached`: in each it finds the best sequence and moves weight to it


@dataclasses.dataclass(frozen=True)
class Loss:
    """A formulation of the multi-class SVM.

    The facts are light: neither NumPy nor Numba is imported before the kernels are used.

    Attributes
    ----------
    name : str
        What settings call it.
    title : str
        Its full name, with the source.
    module : str
        The module with its ``KERNELS``: of `streamsvm.losses`, or, for sequences, of `streamsvm.chains`.
    solvers : tuple of str
        Names of its block solvers, the default first.
    margins : tuple of float
        The margin scales M that it is defined for, the default first.
    dense_duals : bool
        Whether a row usually has nearly all of its duals, not few of them.
    own_dual : bool
        Whether the row's own class has a dual of its own.
    extra_columns : int
        1 if the weights have a column beyond the classes, of which each class has 1/k; else 0.
    probabilities : {"softmax", "sparsemax"}, optional
        What its models have as probabilities: the softmax of the scores, or their projection to the simplex.
    pair_margins : bool
        Whether each pair of classes may have a margin of its own.
    label_sets : bool
        Whether a row may have several labels.
    parameters : tuple of str
        The settings that are for this loss, or some others, alone.
    common_dual : bool
        Whether there are kernels with one dual for most wrong classes of a row, for very many classes (see
        `streamsvm.losses.common_dual`).
    linear_duals : bool
        Whether the dual objective is Σ b's terms - ½‖W‖² with terms that are linear in b, over a set that
        grows with C: all duals may then be multiplied by what C is multiplied by.
    starts_at_means : bool
        Whether each dual may be as large as the cost of its row whatever the others are, and adds itself to
        the dual objective (see `streamsvm.training.class_means`).
    sequences : bool
        Whether it is a loss of groups of rows, whose labels are predicted at once by transitions between
        them: these are one more row of the weights for each class.
    class_splits : bool
        Whether the classes may be split: the block problem over some of them alone is one of the same kind,
        and touches the weights of no others.
    centred : bool
        Whether the weights are kept at the mean 0 over the classes, instead of with a column beyond them.
    """

    name: str
    title: str
    module: str
    solvers: tuple[str, ...]
    margins: tuple[float, ...] = (1.0,)
    dense_duals: bool = False
    own_dual: bool = False
    extra_columns: int = 0
    probabilities: Literal["softmax", "sparsemax"] | None = None
    pair_margins: bool = True
    label_sets: bool = False
    parameters: tuple[str, ...] = ()
    common_dual: bool = False
    linear_duals: bool = False
    starts_at_means: bool = False
    sequences: bool = False
    class_splits: bool = False
    centred: bool = False

    @property
    def has_inner_passes(self) -> bool:
        """True if a visit over the classes of a row's duals alone is cheaper than one over all classes."""
        return not self.dense_duals and not self.sequences

    @property
    def by_classes(self) -> Loss:
        """The loss in the form that is trained if the classes are split."""
        return dataclasses.replace(self, extra_columns=0, centred=True) if self.extra_columns else self

    def extra_rows(self, n_classes: int) -> int:
        """Return the number of rows of the weights beyond the features."""
        return n_classes if self.sequences else 0

    def max_duals(self, n_classes: int, solver: str | None = None) -> int:
        """Return the most duals that a row can have, with the default solver or another."""
        if self.sequences:
            return n_classes**2 if self._has_pairs(solver) else MOST_SEQUENCES
        return n_classes if self.own_dual else n_classes - 1

    def dual_ids(self, n_classes: int, solver: str | None = None) -> int:
        """Return how many ids the duals of a row may have: those of classes, or of pairs of classes."""
        return n_classes**2 if self._has_pairs(solver) else n_classes

    def has_distinct_ids(self, solver: str | None = None) -> bool:
        """Return True if no two duals of a row have one id."""
        return not self.sequences or self._has_pairs(solver)

    def _has_pairs(self, solver: str | None) -> bool:
        """Return True if duals are marginals of pairs of classes."""
        return self.sequences and solver not in (None, "cached")

    @functools.cached_property
    def kernels(self) -> Kernels:
        """The kernels; importing them loads Numba."""
        return self._kernels(self.module)[(self.name, "classes") if self.centred else self.name]

    @functools.cached_property
    def common_kernels(self) -> Kernels:
        """The kernels with a common dual."""
        return self._kernels("common_dual")[self.name]

    def kernels_of(self, solver: str) -> Kernels:
        """Return the kernels with a block solver."""
        if solver == self.solvers[0]:
            return self.kernels
        others = self._kernels(self.module if self.sequences else "published")
        return others[self.name, solver]._replace(loss_rows=self.kernels.loss_rows)

    def _kernels(self, module: str) -> Any:
        package = "chains" if self.sequences else "losses"
        return importlib.import_module(f"streamsvm.{package}.{module}").KERNELS
