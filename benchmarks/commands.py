"""From text to test accuracy by whole commands, starts included: streamsvm, Vowpal Wabbit, LIBLINEAR.

Each side is one command, all in turns, after one round that is not timed, but compiles.
Vowpal Wabbit gets its own form of text, written beforehand. What is not installed is left out.
"""

from __future__ import annotations

import bz2
import importlib.util
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from common import Data, Out, Pair, Sets, choose, print_records, start, write_json
from measured import run
from typer import Option

LIBLINEAR = """
import json, sys
from liblinear.liblinearutil import predict, svm_read_problem, train

rows, test = (svm_read_problem(path, return_scipy=True) for path in sys.argv[1:])
print(json.dumps({"valid_accuracy": predict(*test, train(*rows, "-s 4 -q"), "-q")[1][0] / 100}))
"""
WABBIT = """
import json, sys
from vowpalwabbit import Workspace

options, train, test, folder = sys.argv[1:]
Workspace(f"-d {train} -f {folder}/model --cache_file {folder}/cache -k {options}").finish()
Workspace(f"-d {test} -t -i {folder}/model -p {folder}/labels --quiet").finish()
with open(test) as rows, open(f"{folder}/labels") as found:
    right = [row.split(" ", 1)[0] == label.strip() for row, label in zip(rows, found, strict=True)]
print(json.dumps({"valid_accuracy": sum(right) / len(right)}))
"""


def unpack(pair: Pair, folder: Path) -> tuple[Path, Path]:
    """Write both files as plain text."""
    for source, name in ((pair.train, "train"), (pair.test, "test")):
        with (bz2.open if source.suffix == ".bz2" else open)(source, "rb") as file:
            (folder / name).write_bytes(file.read())
    return folder / "train", folder / "test"


def write_for_wabbit(paths: Sequence[Path], folder: Path) -> tuple[list[Path], int, int]:
    """Write the text with labels from 1 on; return where, and the numbers of classes and features."""
    rows = [[line.split(None, 1) for line in path.read_text().splitlines()] for path in paths]
    codes = {label: k + 1 for k, label in enumerate(sorted({row[0] for row in rows[0]}))}
    width = max(int(row[1].rstrip().rpartition(" ")[2].partition(":")[0]) for row in rows[0] if len(row) > 1)
    written = []
    for path, those in zip(paths, rows, strict=True):
        text = "".join(f"{codes.get(row[0], 0)} | {' '.join(row[1:])}\n" for row in those)
        (folder / f"{path.name}.vw").write_text(text)
        written.append(folder / f"{path.name}.vw")
    return written, len(codes), width + 1


def sides(train: Path, test: Path, folder: Path, passes: int) -> dict[str, list[str]]:
    """The command of each side that is installed, which prints the accuracy."""
    options = f"--out {folder / 'run'} --force --passes {passes} --gap none --quiet --json".split()
    options += ["--transform", "none"]
    found = {
        "streamsvm": [sys.executable, "-m", "streamsvm", "fit", str(train), "--valid", str(test), *options]
    }
    if importlib.util.find_spec("vowpalwabbit"):
        paths, classes, width = write_for_wabbit([train, test], folder)
        bits = max(18, (classes * width - 1).bit_length())
        learner = f"--oaa {classes} --loss_function hinge --noconstant -b {bits}"
        learner += f" --passes {passes} --holdout_off --quiet"
        found["Vowpal Wabbit"] = [
            sys.executable, "-c", WABBIT, learner, *map(str, paths), str(folder)
        ]  # fmt: skip
    if importlib.util.find_spec("liblinear"):
        found["LIBLINEAR -s 4"] = [sys.executable, "-c", LIBLINEAR, str(train), str(test)]
    return found


def run_side(command: Sequence[str], folder: Path) -> tuple[float, float, float]:
    """Run the command of a side; return wall and processor seconds, and the accuracy that it prints."""
    cost = run(command, cwd=folder)
    return cost.seconds, cost.cpu_seconds, json.loads(cost.output)["valid_accuracy"]


def main(
    data: Data,
    sets: Sets = "letter,mnist,sector",
    passes: Annotated[int, Option(help="of streamsvm and Vowpal Wabbit")] = 3,
    rounds: int = 5,
    out: Out = None,
) -> None:
    results = {}
    for pair in choose(data, sets):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            commands = sides(*unpack(pair, folder), folder, passes)
            turns = [
                {side: run_side(each, folder) for side, each in commands.items()} for _ in range(1 + rounds)
            ]
        records: list[dict[str, Any]] = []
        for side in commands:
            wall, cpu, accuracy = zip(*(turn[side] for turn in turns[1:]), strict=True)
            ratios = [turn["streamsvm"][0] / turn[side][0] for turn in turns[1:]]
            records.append(
                {
                    "": side,
                    "least s": min(wall),
                    "median s": statistics.median(wall),
                    "processor s": statistics.median(cpu),
                    "ours / it": statistics.median(ratios),
                    "accuracy": accuracy[-1],
                }
            )
        print_records(pair.name, records)
        results[pair.name] = records
    write_json(out, {"commands": results})


if __name__ == "__main__":
    start(main, __doc__)
