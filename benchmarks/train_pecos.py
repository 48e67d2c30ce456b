"""PECOS' linear model on rows of a folder; run by label_sets.py in an environment that has it.

PECOS needs NumPy 1, and streamsvm NumPy 2. FOLDER holds X.npz, Y.npz and X_test.npz. Written are NUMBER.npz,
the scores of the test rows, NUMBER, the saved model, and ways.json.
"""

import json
import sys
import time
from pathlib import Path

import scipy.sparse as sp
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


def main(folder: Path, C: float) -> None:
    X, Y, X_test = (sp.load_npz(folder / f"{name}.npz").tocsr() for name in ("X", "Y", "X_test"))
    Y, costs = Y.tocsc(), {"Cp": C, "Cn": C, "threads": 1}
    without_bias = {"bias": -1.0, "threshold": 0.0, **costs}  # and every coefficient is kept
    all_scores = {"only_topk": Y.shape[1], "post_processor": "noop"}

    def tree():
        clusters = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa", threads=1), threads=1)
        return XLinearModel.train(X, Y, C=clusters, **costs)

    ways = [  # name, training, prediction, whether a score above 0 says that a class is a label
        ("tree", tree, {}, False),
        ("one-vs-rest", lambda: XLinearModel.train(X, Y, **costs), all_scores, True),
        ("problem of ovr2", lambda: XLinearModel.train(X, Y, **without_bias), all_scores, True),
    ]
    found = []
    for number, (name, train, prediction, decides) in enumerate(ways):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        model = train()
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - begin_cpu
        sp.save_npz(
            folder / f"{number}.npz", model.predict(X_test, threads=1, **prediction), compressed=False
        )
        model.save(str(folder / str(number)))
        found.append({"name": name, "decides": decides, "seconds": seconds, "CPU seconds": cpu_seconds})
    (folder / "ways.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
