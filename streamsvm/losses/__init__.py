"""Formulations of the multi-class SVM: one file each, and one line each in `LOSSES`.

Each of them is trained through its dual. A row x of class y with duals b_j >= 0 adds M Σ_j b_j x to the
weights of its own class and -M b_j x to those of class j (unless the loss says otherwise), and the dual
objective is Σ of the duals' terms - ½‖W‖². A loss states how to solve the block problem of one row, and its
value (see `streamsvm.kernels.frame.make_kernels`); the loops around that are the same for all.
"""

from __future__ import annotations

from streamsvm.errors import SettingsError
from streamsvm.losses.base import Loss

_SOLVERS = ("newton", "sorted")

_ALL = (
    Loss("ww", "Weston-Watkins (Wang & Scott 2021)", "weston_watkins", _SOLVERS, margins=(1.0, 0.5)),
    Loss("cs", "Crammer-Singer (Blondel, Fujino & Ueda 2014)", "crammer_singer", _SOLVERS),
    Loss("ovr", "One-vs-rest hinge (Hsieh et al. 2008)", "one_vs_rest", ("clip",), own_dual=True),
)

LOSSES: dict[str, Loss] = {loss.name: loss for loss in _ALL}


def get_loss(name: str) -> Loss:
    """The loss `name`; raises `SettingsError` for an unknown one."""
    if name not in LOSSES:
        raise SettingsError(f"unknown loss {name!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[name]
