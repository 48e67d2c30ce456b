"""Dense rows: a pass against one matrix product, and training against other programs, in one run.

Rows are generated: class means and noise, of length 1. streamsvm has as many threads as `--threads` says,
the others as many as OPENBLAS_NUM_THREADS and OMP_NUM_THREADS do. Adam is a loop of JAX, which must be
installed, over batches of 256 rows, with the logistic loss.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np
from common import start
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import LinearSVC
from typer import Option

import streamsvm

TEST_ROWS, FEATURES, BATCH = 5000, 768, 256
RATES = (0.003, 0.01, 0.03)


def generate(n_rows: int, n_classes: int, n_features: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    means = rng.standard_normal((n_classes, n_features), np.float32)
    labels = rng.integers(0, n_classes, n_rows)
    X = 1.6 * rng.standard_normal((n_rows, n_features), np.float32)
    for begin in range(0, n_rows, 10_000):
        X[begin : begin + 10_000] += 0.35 * means[labels[begin : begin + 10_000]]
    return X / np.linalg.norm(X, axis=1, keepdims=True), labels


def seconds_of_product(X: np.ndarray, n_classes: int) -> float:
    W, best = np.zeros((X.shape[1], n_classes), np.float32), np.inf
    for _ in range(3):
        began = time.perf_counter()
        X @ W
        best = min(best, time.perf_counter() - began)
    return best


def train_adam(
    X: np.ndarray, y: np.ndarray, n_classes: int, rate: float, epochs: int
) -> Iterator[tuple[float, np.ndarray]]:
    """Yield the seconds of training up to the end of each epoch, and the weights there."""
    import jax
    import jax.numpy as jnp

    def loss(W: Any, rows: Any, labels: Any) -> Any:
        scores = rows @ W
        own = jnp.take_along_axis(scores, labels[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - own)

    @jax.jit
    def step(state: Any, rows: Any, labels: Any, t: Any) -> Any:
        W, first, second = state
        gradient = jax.grad(loss)(W, rows, labels)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        moved = (first / (1 - 0.9**t)) / (jnp.sqrt(second / (1 - 0.999**t)) + 1e-8)
        return W - rate * moved, first, second

    zeros = jnp.zeros((X.shape[1], n_classes), jnp.float32)
    state, rng, t, spent = (zeros, zeros, zeros), np.random.default_rng(0), 0, 0.0
    step(state, X[:BATCH], y[:BATCH].astype(np.int32), 1.0)[0].block_until_ready()
    for _ in range(epochs):
        began = time.perf_counter()
        order = rng.permutation(len(X))
        for begin in range(0, len(X) - BATCH + 1, BATCH):
            t += 1
            rows = order[begin : begin + BATCH]
            state = step(state, X[rows], y[rows].astype(np.int32), float(t))
        state[0].block_until_ready()
        spent += time.perf_counter() - began
        yield spent, np.asarray(state[0])


def main(
    rows: int = 60_000,
    classes: Annotated[str, Option(metavar="A,B")] = "100,1000,10000",
    passes: Annotated[str, Option(metavar="A,B")] = "1,3",
    threads: int = 1,
    epochs: int = 5,
    without: Annotated[list[str] | None, Option(help="a way to leave out; can be repeated")] = None,
) -> None:
    warnings.simplefilter("ignore")  # of those that do not converge at their defaults
    left_out = without or []
    print(f"{'classes':>8}  {'':32}{'accuracy':>9}{'seconds':>9}{'products':>9}")
    for k in map(int, classes.split(",")):
        X, y = generate(rows + TEST_ROWS, k, FEATURES)
        X, y, X_test, y_test = X[:-TEST_ROWS], y[:-TEST_ROWS], X[-TEST_ROWS:], y[-TEST_ROWS:]
        product = seconds_of_product(X, k)

        def show(way: str, accuracy: float, seconds: float, k: int = k, product: float = product) -> None:
            print(f"{k:8,}  {way:32}{100 * accuracy:9.2f}{seconds:9.2f}{seconds / product:9.1f}", flush=True)

        show("one product X W", np.nan, product)
        streamsvm.fit(X[:3000], y[:3000], passes=1, C=1.0, gap="none")  # compiles
        for n_passes, average, C in [
            (3, False, 0.01),
            *((int(n), True, "auto") for n in passes.split(",")),
        ]:
            began = time.perf_counter()
            model = streamsvm.fit(X, y, passes=n_passes, average=average, C=C, gap="none", workers=threads)
            seconds, history = time.perf_counter() - began, model.result.history
            found = float((model.predict(X_test) == y_test).mean())
            if C == "auto":
                show(f"streamsvm, {n_passes} passes, C {model.result.C:.2g}", found, seconds)
            else:
                show("a pass without average", found, history[1]["seconds"])
        if "adam" not in left_out:
            for rate in RATES:
                for epoch, (seconds, W) in enumerate(train_adam(X, y, k, rate, epochs), 1):
                    found = float(((X_test @ W).argmax(axis=1) == y_test).mean())
                    show(f"Adam, rate {rate}, epoch {epoch}", found, seconds)
        others: dict[str, Callable[[], Any]] = {
            "SGDClassifier": SGDClassifier, "LogisticRegression": LogisticRegression, "LinearSVC": LinearSVC,
        }  # fmt: skip
        for name, make in others.items():
            if name not in left_out:
                began = time.perf_counter()
                other = make().fit(X, y)
                show(name, float(other.score(X_test, y_test)), time.perf_counter() - began)


if __name__ == "__main__":
    start(main, __doc__)
