"""Draws the picture of the README: accuracy and gap by pass of a run on more data than it may hold in memory.

It needs 1 GB of disk, some minutes, and the extra ``plot``; stores and a run that are in the folder are used
again. There are no times in the picture, so the machine may be busy.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from common import bytes_option, start
from generate import VALUE_BYTES
from typer import Option

from streamsvm import open_store, plot
from streamsvm.reporting.history import achieved, read_history

FOLDER = Path(__file__).parent
MEMORY = 200 * 10**6
DATA = "--classes 20 --features 100000"
FIT = f"--valid test.zarr --C 0.1 --passes 5 --gap pass --transform none --memory {MEMORY} --out run --force"
STYLE: Any = {"svg.fonttype": "path", "svg.hashsalt": "run", "font.size": 9, "axes.titlesize": 10}


def train(folder: Path, size: int) -> None:
    """Make the stores and the run in `folder`, unless they are there: on non-zeros of `size` bytes."""
    generate = [sys.executable, str(FOLDER / "generate.py"), *DATA.split()]
    steps = {
        "train.zarr": [*generate, "--size", str(size), "--out", "train.zarr"],
        "test.zarr": [*generate, "--part", "test", "--rows", "20000", "--out", "test.zarr"],
        "run/model": [sys.executable, "-m", "streamsvm_cli.main", "fit", "train.zarr", *shlex.split(FIT)],
    }
    for made, command in steps.items():
        if not (folder / made).exists():
            subprocess.run(command, cwd=folder, check=True)


def draw(run: Path, size: int, out: Path) -> None:
    """Draw the run, which was trained on non-zeros of `size` bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    history = read_history(run)
    peak = achieved(history, {})["peak_memory_bytes"]
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(figsize=(9, 2.7), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12)
        accuracy, gap, memory = figure.subplots(1, 3)
        plot.accuracy(history, accuracy).set_title("accuracy by pass")
        plot.convergence(history, gap).set_title("distance to the optimum, at most")
        bars = {"rows trained on": size, "--memory": MEMORY, "peak of the\nprocess": peak}
        sizes = [n / 1e6 for n in bars.values()]
        drawn = memory.barh(list(bars), sizes, color=["#6e7781", "#b84a00", "#0067a5"])
        memory.bar_label(drawn, [f"{size:,.0f} MB" for size in sizes], padding=3)
        memory.invert_yaxis()
        memory.margins(x=0.3)
        memory.spines[["top", "right"]].set_visible(False)
        memory.set(title="memory against data", xlabel="MB")
        figure.savefig(out, facecolor="white", metadata={"Date": None, "Creator": None})


def main(
    work: Annotated[Path, Option(help="for the data and the run")],
    out: Path = FOLDER.parent / "docs" / "run.svg",
    size: Annotated[int, bytes_option("of the non-zeros")] = 10**9,
) -> None:
    work.mkdir(parents=True, exist_ok=True)
    train(work, size)
    with open_store(work / "train.zarr") as store:
        draw(work / "run", store.nnz * VALUE_BYTES, out)


if __name__ == "__main__":
    start(main, __doc__)
