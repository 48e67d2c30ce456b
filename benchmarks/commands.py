"""From text to test accuracy by whole commands, starts included: streamsvm, Vowpal Wabbit, LIBLINEAR.

Each side runs in processes of its own, all in turns, after one round that is not timed, but compiles.
Vowpal Wabbit gets its own form of text, written beforehand. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import bz2
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from common import Pair, choose, data_folder, find_pairs, print_table, write_json

QUICK_LINES = 300
LIBLINEAR = """
import json, sys
from liblinear.liblinearutil import predict, svm_read_problem, train

rows, test = (svm_read_problem(path, return_scipy=True) for path in sys.argv[1:])
print(json.dumps({"accuracy": predict(*test, train(*rows, "-s 4 -q"), "-q")[1][0] / 100}))
"""
WABBIT = """
import json, sys
from vowpalwabbit import Workspace

options, train, test, folder = sys.argv[1:]
Workspace(f"-d {train} -f {folder}/model --cache_file {folder}/cache -k {options}").finish()
Workspace(f"-d {test} -t -i {folder}/model -p {folder}/labels --quiet").finish()
with open(test) as rows, open(f"{folder}/labels") as found:
    right = [row.split(" ", 1)[0] == label.strip() for row, label in zip(rows, found, strict=True)]
print(json.dumps({"accuracy": sum(right) / len(right)}))
"""


def unpack(pair: Pair, folder: Path, quick: bool) -> tuple[Path, Path]:
    """Write both files as plain text; if `quick`, a few of the lines."""
    found = []
    for source, name in ((pair.train, "train"), (pair.test, "test")):
        with (bz2.open if source.suffix == ".bz2" else open)(source, "rt") as file:
            lines = file.readlines()
        (folder / name).write_text("".join(lines[:: 1 + len(lines) // QUICK_LINES if quick else 1]))
        found.append(folder / name)
    return found[0], found[1]


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


def sides(train: Path, test: Path, folder: Path, passes: int) -> dict[str, list[list[str]]]:
    """The commands of each side that is installed, the last of which prints the accuracy."""
    ours = [sys.executable, "-m", "streamsvm"]
    store, run = str(folder / "train.zarr"), str(folder / "run")
    found = {
        "streamsvm": [
            [*ours, "convert", str(train), "--out", store, "--force"],
            [*ours, "fit", store, "--out", run, "--force", "--passes", str(passes)],
            [*ours, "evaluate", run, str(test), "--json"],
        ]
    }
    if importlib.util.find_spec("vowpalwabbit"):
        paths, classes, width = write_for_wabbit([train, test], folder)
        bits = max(18, (classes * width - 1).bit_length())
        options = (
            f"--oaa {classes} --loss_function hinge --noconstant -b {bits} --passes {passes} --holdout_off"
        )
        found["Vowpal Wabbit"] = [
            [sys.executable, "-c", WABBIT, options + " --quiet", *map(str, paths), str(folder)]
        ]
    if importlib.util.find_spec("liblinear"):
        found["LIBLINEAR -s 4"] = [[sys.executable, "-c", LIBLINEAR, str(train), str(test)]]
    return found


def run_side(commands: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Run the commands of a side; return wall and processor seconds, and the accuracy that it prints."""
    begin, before = time.perf_counter(), os.times()
    for command in commands:
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    after = os.times()
    cpu = sum(after[2:4]) - sum(before[2:4])  # of children
    return time.perf_counter() - begin, cpu, json.loads(printed)["accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of LIBSVM files; otherwise STREAMSVM_DATA")
    parser.add_argument("--sets", default="letter,mnist,sector", help="names of data sets, with commas")
    parser.add_argument("--passes", type=int, default=3, help="of streamsvm and Vowpal Wabbit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help=f"one round with less than {QUICK_LINES} rows")
    parser.add_argument("--out", help="also write the figures here, as JSON")
    given = parser.parse_args()
    results = {}
    for pair in choose(find_pairs(data_folder(given.data)), given.sets):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            train, test = unpack(pair, folder, given.quick)
            commands = sides(train, test, folder, given.passes)
            rounds = [
                {side: run_side(each) for side, each in commands.items()}
                for _ in range(1 + (1 if given.quick else given.rounds))
            ][1:]
        rows = []
        for side in commands:
            wall, cpu, accuracy = zip(*(each[side] for each in rounds), strict=True)
            ratio = statistics.median(each["streamsvm"][0] / each[side][0] for each in rounds)
            rows.append(
                [side, min(wall), statistics.median(wall), statistics.median(cpu), ratio, accuracy[-1]]
            )
        headers = ["", "least s", "median s", "processor s", "ours / it", "accuracy"]
        print_table(pair.name, headers, rows)
        results[pair.name] = [dict(zip(["side", *headers[1:]], row, strict=True)) for row in rows]
    write_json(given.out, {"commands": results})


if __name__ == "__main__":
    main()
