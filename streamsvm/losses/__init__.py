"""Formulations of the multi-class SVM: one file each, and one line each in `MODULES`.

A loss is a module. All of them train duals b_i >= 0 of the classes other than the row's own, with
weights w_j = -margin Σ_i b_ij x_i, w_y = +margin Σ_i Σ_j b_ij x_i and the dual objective
Σ b - ½‖w‖². A module offers

``TITLE``
    its name in full, with the source.
``SOLVERS``
    names of its block solvers, the default first.
``MARGINS``
    margin scales M that it is defined for, the default first.
``visit(rows, order, begin, end, weights, n_classes, C, margin, solver, old, pool, scratch, tally)``
    kernel: one exact block step for each row of ``order[begin:end]``; returns the position reached,
    which is before `end` when the pool has no room for another row.
``revisit(rows, order, starts, weights, C, margin, pool, scratch, tally)``
    kernel: one block step for each of the pool's rows ``order``, over the classes of their duals
    alone; row r's duals begin at ``starts[r]`` in the pool and are replaced there.
``loss_rows(rows, weights, lagging, n_classes, margin, scratch, tallies)``
    kernel: add each row's loss (without C), and whether it is classified correctly, to the rows of
    `tallies`, shape (1 or 2, N_TALLIES): by the last iterate, and by the weights ``now - lagging * lag``.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from streamsvm.errors import SettingsError

MODULES = {
    "ww": "streamsvm.losses.weston_watkins",
    "cs": "streamsvm.losses.crammer_singer",
}


def get_loss(name: str) -> ModuleType:
    """The module of the loss `name`; raises `SettingsError` for an unknown one."""
    if name not in MODULES:
        raise SettingsError(f"unknown loss {name!r}; choose one of {', '.join(MODULES)}")
    return importlib.import_module(MODULES[name])
