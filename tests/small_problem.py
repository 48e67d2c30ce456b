"""Sizes of the small problem that most tests of training share, and the losses that they try."""

from __future__ import annotations

from streamsvm.losses import LOSSES

N, D, K = 70, 11, 5
BLOCK = 16  # rows: five blocks, the last of six

# Loss, margin and solver of every formulation.
FORMULATIONS = [
    (loss.name, margin, solver)
    for loss in LOSSES.values()
    for margin in loss.margins
    for solver in loss.solvers
]
