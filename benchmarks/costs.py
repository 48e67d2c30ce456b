"""What weights of classes and a tree of classes are good for: macro F1 and mean distance, with and without.

See README.md. Rows are in memory, in float32; times are not measured.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import scipy.sparse as sp
from common import choose, data_folder, find_pairs, print_table, write_json
from losses import load
from others import liblinear_weights
from scipy.cluster.hierarchy import fcluster, linkage
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
from tasks import Task

from streamsvm import Evaluation, evaluate, fit
from streamsvm.settings.fit import BALANCED

SHARES = (0.5, 0.3, 0.1, 0.06, 0.04)  # of the classes of the generated rows
LIBLINEAR = {"cs": "-s 4", "ovr": "-s 3", "ovr2": "-s 1"}  # the same problems as ours
GROUPS = (200, 30)  # inner nodes of the tree, from the classes up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", metavar="FOLDER", help="LIBSVM files; by default $STREAMSVM_DATA")
    parser.add_argument("--sets", metavar="A,B", default="wn1000", help="data sets for the tree (wn1000)")
    parser.add_argument("--losses", metavar="A,B", default="ww,cs,ovr2", help="losses")
    parser.add_argument("--C", metavar="A,B", default="0.25,1,4", help="values of C for the tree")
    parser.add_argument("--passes", type=int, default=5, help="passes over the data (5)")
    parser.add_argument("--no-tree", action="store_true", help="generated rows alone")
    parser.add_argument("--quick", action="store_true", help="small data, to see that it works")
    parser.add_argument("--out", metavar="FILE", help="write the results as JSON, too")
    options = parser.parse_args()
    try:
        sets = "letter" if options.quick else options.sets
        pairs = [] if options.no_tree else choose(find_pairs(data_folder(options.data)), sets)
    except ValueError as error:
        parser.error(str(error))
    losses = options.losses.split(",")
    balanced = measure_balanced(losses, 2000 if options.quick else 20_000)
    trees = {
        pair.name: measure_tree(
            load(pair, 1.0), losses, [float(C) for C in options.C.split(",")], options.passes
        )
        for pair in pairs
    }
    write_json(options.out, {"options": vars(options), "balanced": balanced, "trees": trees})


def measure_balanced(losses: list[str], n: int) -> list[dict[str, Any]]:
    """Accuracy and macro F1 on rows of unequal classes, of ours and of LIBLINEAR with its ``-wi``."""
    X, y = make_classification(
        2 * n, 40, n_informative=5, n_classes=len(SHARES), n_clusters_per_class=1, weights=list(SHARES),
        class_sep=1.0, random_state=0,
    )  # fmt: skip
    X = sp.csr_matrix(np.c_[X, np.ones(2 * n)].astype(np.float32))  # with a constant, as intercepts
    C = 1 / float((X.data.astype(float) ** 2).sum() / len(y))
    task = Task(X[:n], y[:n], X[n:], y[n:], len(SHARES), C)
    counts = np.bincount(task.y)
    weights = n / (len(counts) * counts)
    options = {None: "", BALANCED: " ".join(f"-w{c} {weight}" for c, weight in enumerate(weights))}
    found = []
    for loss in losses:
        for class_weight, of_liblinear in options.items():
            model = fit(task.X, task.y, loss=loss, C=C, passes=30, gap="none", class_weight=class_weight)
            ours = evaluate(model, task.X_test, task.y_test)
            row = {
                "loss": loss,
                "weights": class_weight,
                "accuracy": ours.accuracy,
                "macro F1": ours.macro_f1,
            }
            if loss in LIBLINEAR:
                coef, _ = liblinear_weights(task, f"{LIBLINEAR[loss]} -e 0.001 {of_liblinear}")
                predicted = (task.X_test @ coef).argmax(axis=1)
                row["LIBLINEAR's accuracy"] = float((predicted == task.y_test).mean())
                row["LIBLINEAR's F1"] = float(f1_score(task.y_test, predicted, average="macro"))
            found.append(row)
    show(f"{n:,} generated rows, classes of {', '.join(f'{share:.0%}' for share in SHARES)}", found)
    return found


def measure_tree(task: Task, losses: list[str], values: list[float], passes: int) -> list[dict[str, Any]]:
    """Accuracy and mean distance with margins of 1, and with those of a tree of the classes' mean rows."""
    tree = class_tree(task)
    known = task.y_test >= 0
    found = []
    for loss in losses:
        for C in values:
            row: dict[str, Any] = {"loss": loss, "C": C}
            for name, given in (("", None), ("tree: ", tree)):
                model = fit(task.X, task.y.astype(str), loss=loss, C=C, passes=passes, gap="none", tree=given)
                result = evaluate(model, task.X_test[known], task.y_test[known].astype(str), tree=tree)
                assert isinstance(result, Evaluation)
                row |= {f"{name}accuracy": result.accuracy, f"{name}distance": result.mean_distance}
            found.append(row)
    show(f"{task.n_classes:,} classes, {passes} passes, averaged", found)
    return found


def class_tree(task: Task) -> dict[str, str]:
    """Clusters of clusters of the classes, by Ward's method from the mean of each class's rows."""
    k, n = task.n_classes, len(task.y)
    means = (sp.csr_matrix((np.ones(n), (task.y, np.arange(n))), (k, n)) @ task.X).toarray()
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    levels = linkage(means, "ward")
    parents: dict[str, str] = {}
    nodes = [str(c) for c in range(k)]
    for size in (size for size in GROUPS if size < k):
        above = [f"{size}-{cluster}" for cluster in fcluster(levels, size, "maxclust")]
        parents |= dict(zip(nodes, above, strict=True))
        nodes = above
    return parents | dict.fromkeys(nodes, "root")


def show(title: str, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    print_table(title, columns, [[row.get(name) for name in columns] for row in rows])


if __name__ == "__main__":
    main()
