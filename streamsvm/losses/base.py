"""What a loss states of itself: facts that settings and plans ask for, and kernels that train it."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

    from streamsvm.kernels.frame import Kernels


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
        The module of `streamsvm.losses` with its ``KERNELS``.
    solvers : tuple of str
        Names of its block solvers, the default first.
    margins : tuple of float
        The margin scales M that it is defined for, the default first.
    duals : {"sparse", "dense", "none"}
        Whether a row usually has few duals, nearly all of them, or none.
    own_dual : bool
        Whether the row's own class has a dual of its own.
    extra_columns : int
        Columns of the weights beside those of the classes.
    """

    name: str
    title: str
    module: str
    solvers: tuple[str, ...]
    margins: tuple[float, ...] = (1.0,)
    duals: Literal["sparse", "dense", "none"] = "sparse"
    own_dual: bool = False
    extra_columns: int = 0

    def max_duals(self, n_classes: int) -> int:
        """The most duals that a row can have."""
        return n_classes if self.own_dual else n_classes - 1

    def to_coef(self, weights: np.ndarray, n_classes: int) -> np.ndarray:
        """The coefficients, shape (n_features, n_classes), of weights, shape (n_features, K)."""
        return weights[:, :n_classes]

    @functools.cached_property
    def kernels(self) -> Kernels:
        """The kernels; importing them loads Numba."""
        return importlib.import_module(f"streamsvm.losses.{self.module}").KERNELS

    @property
    def visit(self) -> Any:
        """The kernel of a full visit (see `streamsvm.kernels.frame.make_kernels`)."""
        return self.kernels.visit

    @property
    def revisit(self) -> Any:
        """The kernel of a visit over the classes with duals alone; None if there is none."""
        return self.kernels.revisit

    @property
    def loss_rows(self) -> Any:
        """The kernel that adds up losses and correct predictions."""
        return self.kernels.loss_rows

    @property
    def norm2(self) -> Any:
        """The kernel of ‖W‖²."""
        return self.kernels.norm2
