"""Test accuracy with straight and curved boundaries, its time and memory, and those of scikit-learn.

Each measurement is one process, from LIBSVM text to the accuracy on the test file. scikit-learn runs SVC
(rbf, C = 10, gamma scale), and RBFSampler with LinearSVC; it is stopped after `--limit` processor seconds.
Results are added to those in `--out`, so that a table can be made in parts, and all are printed in Markdown.
"""

from __future__ import annotations

import itertools
import json
import math
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from common import Data, Pair, Sets, choose, start, write_json
from measured import Failed, run
from picture import STYLE
from typer import Option

SETS = "letter,pendigits,satimage,dna,mnist,news20,sector,clinc150,wn1000"
METHODS = "SVC,RBFSampler,default,auto,candidates"
WIDTHS = {f"fourier={width} ww": str(width) for width in (256, 512, 1024, 2048, 4096)}
LONG = "fourier=4096 ww --C 10 --passes 10"
FIT = ["--out", "run", "--force", "--quiet", "--json"]
OURS = {"default": "", "auto": "--transform auto --loss auto"}
MODELS = {
    "SVC": 'SVC(C=10, gamma="scale")',
    "RBFSampler": 'make_pipeline(RBFSampler(gamma="scale", n_components=2048, random_state=0), LinearSVC())',
}
SKLEARN = """
import json, resource, sys, warnings
from sklearn.datasets import load_svmlight_files
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

warnings.simplefilter("ignore")
limit, train, test = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CPU, (int(limit), resource.getrlimit(resource.RLIMIT_CPU)[1]))
X, y, X_test, y_test = load_svmlight_files((train, test))
if X.shape[1] <= 4096:
    X, X_test = X.toarray(), X_test.toarray()
else:  # SVC takes no others
    for each in (X, X_test):
        each.indices, each.indptr = each.indices.astype("i4"), each.indptr.astype("i4")
print(json.dumps({"valid_accuracy": MODEL.fit(X, y).score(X_test, y_test)}))
"""
LABELS, NONE = dict.fromkeys(MODELS, ""), {"accuracy": 0.0}
Results = dict[str, dict[str, Any]]  # by set and by method


def commands(pair: Pair, method: str, found: dict[str, Any], limit: int) -> Iterator[tuple[str, list[Any]]]:
    """Yield names and commands of measurements; candidates are those that auto compared before."""
    fit = [sys.executable, "-m", "streamsvm", "fit", pair.train, "--valid", pair.test, *FIT]
    if method in MODELS:
        program = SKLEARN.replace("MODEL", MODELS[method])
        yield method, [sys.executable, "-c", program, limit, pair.train, pair.test]
    elif method in OURS:
        yield method, [*fit, *OURS[method].split()]
    else:
        for name in [*WIDTHS, LONG] if method == "widths" else tried(found):
            transform, loss, *more = name.split()
            yield name, [*fit, "--transform", transform, "--loss", loss, *more]


def tried(found: dict[str, Any]) -> list[str]:
    """List the candidates of auto, each as its transforms and its loss."""
    choice = found.get("auto", {}).get("choice", {"tried": []})
    return [f"{each['transform']} {each['loss']}" for each in choice["tried"]]


def measure(words: list[Any], pair: Pair) -> dict[str, Any] | None:
    """Run a command, of ours first on a few rows to compile; None if it was stopped."""
    with tempfile.TemporaryDirectory() as folder:
        if "--valid" in words:
            lines, few = pair.train.read_bytes().splitlines(keepends=True), Path(folder, "few")
            few.write_bytes(b"".join(lines[:: max(1, len(lines) // 1000)]))
            run([few if word in (pair.train, pair.test) else word for word in words], cwd=Path(folder))
        try:
            cost = run(words, cwd=Path(folder))
        except Failed as error:
            if f"exit code {-signal.SIGXCPU}\n" not in str(error):
                raise
            return None
        printed = json.loads(cost.output)
        record = Path(folder, "run", "run.json")
        choice = json.loads(record.read_text()).get("choice") if record.exists() else None
    result = {"accuracy": printed["valid_accuracy"], "processor s": cost.cpu_seconds}
    result |= {"peak memory": cost.resident_memory}
    if choice:
        settings = printed["settings"]
        result |= {"choice": choice, "chosen": f"{settings['transform']} {settings['loss']}"}
    return result


def print_markdown(headers: list[str], rows: list[list[str]]) -> None:
    print()
    print(f"| {' | '.join(headers)} |\n|---|{'--:|' * (len(headers) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def percent(result: dict[str, Any] | None, name: str = "") -> str:
    return f"{100 * result['accuracy']:.2f}{f' ({name})' * bool(name)}" if result else "-"


def taken(result: dict[str, Any] | None) -> str:
    return f"{result['processor s']:.1f}, {result['peak memory'] / 1e6:.0f}" if result else "-"


def print_tables(results: Results) -> None:
    """Print accuracy and costs by method, and by the number of random features."""
    accuracies, costs, widths, width_costs = [], [], [], []
    for name, found in results.items():
        chosen = found.get("auto", {}).get("chosen", "")
        best = max(tried(found), key=lambda each: found.get(each, NONE)["accuracy"], default="")
        shown = {"default": "", "auto": chosen, best: "" if best == chosen else best, **LABELS}
        accuracies.append([name, *(percent(found.get(each), label) for each, label in shown.items())])
        costs.append([name, *(taken(found.get(each)) for each in shown)])
        if not WIDTHS.keys().isdisjoint(found):
            by_width = [found.get(each) for each in ("default", *WIDTHS, LONG)]
            widths.append([name, *map(percent, by_width)])
            width_costs.append([name, *map(taken, by_width)])
    methods = ["", "default", "auto", "best candidate", "SVC", "RBFSampler + LinearSVC"]
    sizes = ["", "default", *WIDTHS.values(), "4096, C = 10, 10 passes"]
    print_markdown(methods, accuracies)
    print_markdown(methods, costs)
    print_markdown(sizes, widths)
    print_markdown(sizes, width_costs)


def draw(results: Results, out: Path) -> None:
    """Draw test accuracy against the number of random features, between a linear model and SVC."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE | {"svg.fonttype": "none"})  # the reader's fonts
        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axes, places = figure.subplots(), [0, *range(2, 2 + len(WIDTHS)), 3 + len(WIDTHS)]
        for name, found in results.items():
            if not WIDTHS.keys().isdisjoint(found):
                y = [
                    100 * (found.get(each) or NONE)["accuracy"] or math.nan
                    for each in ("default", *WIDTHS, "SVC")
                ]
                [line] = axes.plot(places[1:-1], y[1:-1], "o-", label=name)
                axes.plot([places[0], places[-1]], [y[0], y[-1]], "s", color=line.get_color())
        axes.set_xticks(places, ["default", *WIDTHS.values(), "SVC"])
        axes.set(xlabel="random features D", ylabel="test accuracy, %")
        axes.grid(axis="y", color="#d0d7de")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower center")
        figure.savefig(out, facecolor="white", metadata={"Date": None, "Creator": None})


def main(
    data: Data,
    sets: Sets = SETS,
    methods: Annotated[str, Option(metavar="A,B", help=f"{METHODS}, widths")] = METHODS,
    limit: Annotated[int, Option(help="processor seconds of scikit-learn")] = 600,
    out: Annotated[Path, Option(metavar="FILE", help="JSON to add results to")] = Path("curved.json"),
    picture: Annotated[Path | None, Option(metavar="SVG", help="draw accuracy against D")] = None,
) -> None:
    results: Results = json.loads(out.read_text())["curved"] if out.exists() else {}
    for pair, method in itertools.product(choose(data, sets), filter(None, methods.split(","))):
        found = results.setdefault(pair.name, {})
        for name, words in commands(pair, method, found, limit):
            found[name] = measure(words, pair)
            print(pair.name, name, percent(found[name]), taken(found[name]), file=sys.stderr, flush=True)
            write_json(out, {"curved": results})
    print_tables(results)
    if picture:
        draw(results, picture)


if __name__ == "__main__":
    start(main, __doc__)
