"""Print the optima of losses by a general convex solver: the rows `optima` of tests/reference.py.

The data are the first rows of the digits that the package brings, the solver is cvxpy's Clarabel (extra
`optima`), and a loss is what `convex` of its class in tests/reference.py states.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from common import start

from streamsvm.losses import ROW_LOSSES

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))


def main(losses: Annotated[str, typer.Argument(metavar="A,B")] = ",".join(ROW_LOSSES)) -> None:
    import general_solver
    import reference
    from small_problem import digits

    X, labels = digits()
    for name in losses.split(","):
        found = {
            margin: tuple(
                general_solver.solve(name, X, labels, 10, C, margin, **reference.LOSSES[name].values)[0]
                for C in reference.OPTIMA_AT
            )
            for margin in ROW_LOSSES[name].margins
        }
        rows = (
            f"{margin}: ({', '.join(f'{value:.9g}' for value in each)})" for margin, each in found.items()
        )
        print(f"{name}: optima = {{{', '.join(rows)}}}")


if __name__ == "__main__":
    start(main, __doc__)
