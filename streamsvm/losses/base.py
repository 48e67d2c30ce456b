"""The class `Loss`: the properties of a loss that settings and memory plans depend on, and its kernels."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from streamsvm.kernels.frame import Kernels


FILLING = ("bcpl", "oeg")  # block solvers that make all duals of a chain positive
# Block solvers for chains of tokens, with the default first.
ON_CHAINS = ("cached", "bcfw", "bcpl", "oeg")
MOST_SEQUENCES = 128  # maximum number of label sequences that the solver `cached` keeps for a chain
ROUNDS = 2  # maximum number of best sequences that `cached` finds and moves weight to in a visit


@dataclasses.dataclass(frozen=True)
class Loss:
    """Formulation of the multi-class SVM. NumPy and Numba are imported only when the kernels are used."""

    name: str
    title: str  # full name, with the source
    module: str  # module with ``KERNELS``, in `streamsvm.losses` or, for sequences, in `streamsvm.chains`
    solvers: tuple[str, ...]  # block solvers, with the default first
    margins: tuple[float, ...] = (1.0,)  # supported margin scales M, with the default first
    dense_duals: bool = False  # nearly all duals of a row are usually non-zero
    own_dual: bool = False  # the true class of a row has a dual
    extra_columns: int = 0  # 1 if there is a shared column, 1/k of which is added to the column of each class
    # Probabilities are the softmax of the scores, or their projection onto the simplex.
    probabilities: Literal["softmax", "sparsemax"] | None = None
    pair_margins: bool = True  # pairs of classes may have different margins
    label_sets: bool = False  # a row may have several labels
    parameters: tuple[str, ...] = ()  # settings that apply to this loss, but not to all losses
    common_dual: bool = False  # supports very many classes (see `streamsvm.losses.common_dual`)
    # Apart from -½‖W‖², the dual objective is linear in the duals, whose feasible set scales with C.
    linear_duals: bool = False
    # Each dual may have any value from 0 to the cost of its row, and adds this value to the dual objective.
    starts_at_means: bool = False
    # The labels of a group of rows are predicted jointly. Transition scores are additional weight rows.
    sequences: bool = False
    # The block problem restricted to some classes has the same form, and changes only the weights of these.
    class_splits: bool = False
    centred: bool = False  # the weights have mean 0 over the classes instead of a shared column

    @property
    def has_inner_passes(self) -> bool:
        """True if a visit restricted to classes with non-zero duals is cheaper than one with all classes."""
        return not self.dense_duals and not self.sequences

    @property
    def by_classes(self) -> Loss:
        """The variant of the loss for training that is split by classes."""
        return dataclasses.replace(self, extra_columns=0, centred=True) if self.extra_columns else self

    def extra_rows(self, n_classes: int) -> int:
        """Return the number of weight rows that follow the feature rows."""
        return n_classes if self.sequences else 0

    def max_duals(self, n_classes: int, solver: str | None = None) -> int:
        """Return the maximum number of duals per row for a block solver; None is the default solver."""
        if self.sequences:
            return n_classes**2 if self._has_pairs(solver) else MOST_SEQUENCES
        return n_classes if self.own_dual else n_classes - 1

    def dual_ids(self, n_classes: int, solver: str | None = None) -> int:
        """Return the number of possible dual ids, which are classes or pairs of classes."""
        return n_classes**2 if self._has_pairs(solver) else n_classes

    def has_distinct_ids(self, solver: str | None = None) -> bool:
        """Return True if no two duals of a row have the same id."""
        return not self.sequences or self._has_pairs(solver)

    def _has_pairs(self, solver: str | None) -> bool:
        """Return True if duals are marginals of pairs of classes."""
        return self.sequences and solver not in (None, "cached")

    @functools.cached_property
    def kernels(self) -> Kernels:
        """The kernels for the default block solver. The first access imports Numba."""
        return self._kernels(self.module)[(self.name, "classes") if self.centred else self.name]

    @functools.cached_property
    def common_kernels(self) -> Kernels:
        return self._kernels("common_dual")[self.name]

    def kernels_of(self, solver: str) -> Kernels:
        """Return the kernels for the block solver `solver`."""
        if solver == self.solvers[0]:
            return self.kernels
        kernels = self._kernels(self.module if self.sequences else "published")
        return kernels[self.name, solver]._replace(loss_rows=self.kernels.loss_rows)

    def _kernels(self, module: str) -> Any:
        package = "chains" if self.sequences else "losses"
        return importlib.import_module(f"streamsvm.{package}.{module}").KERNELS
