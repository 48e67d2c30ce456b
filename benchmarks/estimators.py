"""`StreamSVMClassifier` against scikit-learn's linear classifiers, in memory, all at their defaults.

Processor seconds of `fit`, the least of some rounds in which all take turns, and accuracy on the test set.
Kernels are loaded before. Data sets are LIBSVM's, in the folder that STREAMSVM_DATA names.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sklearn.datasets import load_svmlight_files
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import LinearSVC

from streamsvm.sklearn import StreamSVMClassifier

SETS = {
    "mnist": ("mnist.scale.bz2", "mnist.scale.t.bz2"),
    "letter": ("letter.scale.bz2", "letter.scale.t.bz2"),
    "news20": ("news20.scale.tr.bz2", "news20.scale.val.bz2"),
    "sector": ("sector.scale.bz2", "sector.scale.t.bz2"),
    "clinc150": ("clinc150.tfidf.bz2", "clinc150.tfidf.t.bz2"),
}
WAYS: dict[str, Callable[[], Any]] = {
    "StreamSVMClassifier": StreamSVMClassifier,
    "without intercept": lambda: StreamSVMClassifier(fit_intercept=False),
    "LinearSVC": LinearSVC,
    "SGDClassifier": SGDClassifier,
    "LogisticRegression": LogisticRegression,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", default=list(SETS), help=f"of {', '.join(SETS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts (default: 3)")
    parser.add_argument("--without", action="append", default=[], help="a way to leave out; can be repeated")
    options = parser.parse_args()
    folder = Path(os.environ["STREAMSVM_DATA"])
    warnings.simplefilter("ignore")  # of those that do not converge at their defaults
    print(f"{'':12}{'':24}{'accuracy':>9}{'CPU s':>9}{'times':>8}")
    for name in options.sets:
        X, y, X_test, y_test = load_svmlight_files([str(folder / file) for file in SETS[name]])
        for matrix in (X, X_test):  # LinearSVC takes no others
            matrix.indices, matrix.indptr = matrix.indices.astype("i4"), matrix.indptr.astype("i4")
        StreamSVMClassifier(passes=1).fit(X[:1000], y[:1000])
        best: dict[str, tuple[float, float]] = {}
        for _ in range(options.rounds):
            for way, make in WAYS.items():
                if way in options.without or best.get(way, (0.0, 0.0))[1] > 60:  # once is enough
                    continue
                began = time.process_time()
                fitted = make().fit(X, y)
                seconds = time.process_time() - began
                if way not in best or seconds < best[way][1]:
                    best[way] = fitted.score(X_test, y_test), seconds
        ours = best["StreamSVMClassifier"][1]
        for way, (accuracy, seconds) in best.items():
            print(f"{name:12}{way:24}{accuracy:9.4f}{seconds:9.2f}{seconds / ours:8.1f}", flush=True)


if __name__ == "__main__":
    main()
