"""Short texts from Parquet to predictions, against scikit-learn's HashingVectorizer and SGDClassifier.

The texts are generated from a seed: words with Zipf's frequencies, a part of them from a vocabulary of the
topic, which overlaps with those of others, and a share of wrong labels in the training data. Each side runs
in processes of its own, one side after the other, and reads the same files in batches. Peak memory is that of
the largest process.
"""

from __future__ import annotations

import string
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from common import Out, print_records, start, write_json
from measured import run
from typer import Option

TOPICS, WORDS, OWN_WORDS = 20, 50_000, 4_000
MEAN_LENGTH, OWN_SHARE, NOISE = 12, 0.35, 0.05
BATCH = 10_000

OTHER = """
import sys
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import SGDClassifier

train, test, out, topics = sys.argv[1:]
vectorizer = HashingVectorizer(ngram_range=(1, 2))
model = SGDClassifier(n_jobs=-1, random_state=0)
classes = [f"topic {t:02d}" for t in range(int(topics))]
for batch in pq.ParquetFile(train).iter_batches(10_000):
    texts, labels = (column.to_pylist() for column in batch)
    model.partial_fit(vectorizer.transform(texts), labels, classes=classes)
with open(out, "w") as file:
    for batch in pq.ParquetFile(test).iter_batches(10_000):
        texts = batch.column(0).to_pylist()
        file.writelines(f"{label}\\n" for label in model.predict(vectorizer.transform(texts)))
"""


def generate(path: Path, n: int, seed: int, noise: float) -> None:
    """Write `n` texts with their topics, of which a share `noise` is wrong."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng([seed, n])
    shared = np.random.default_rng(0)  # the language is that of all files
    letters = np.array(list(string.ascii_lowercase))
    words = np.array(
        sorted({"".join(shared.choice(letters, shared.integers(3, 11))) for _ in range(2 * WORDS)})
    )
    words = shared.permutation(words)[:WORDS]
    cumulated = np.cumsum(1 / np.arange(1, WORDS + 1))
    own_cumulated = np.cumsum(1 / np.arange(1, OWN_WORDS + 1))
    own_words = np.stack([shared.permutation(WORDS)[:OWN_WORDS] for _ in range(TOPICS)])
    schema = pa.schema([("body", pa.string()), ("topic", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, BATCH):
            size = min(BATCH, n - start)
            topics = rng.integers(TOPICS, size=size)
            lengths = 1 + rng.poisson(MEAN_LENGTH - 1, size)
            of_word = np.repeat(topics, lengths)
            total = len(of_word)
            common = np.searchsorted(cumulated, rng.random(total) * cumulated[-1])
            own = np.searchsorted(own_cumulated, rng.random(total) * own_cumulated[-1])
            chosen = np.where(rng.random(total) < OWN_SHARE, own_words[of_word, own], common)
            spelled = words[chosen].tolist()
            ends = np.cumsum(lengths).tolist()
            texts = [
                " ".join(spelled[end - length : end])
                for end, length in zip(ends, lengths.tolist(), strict=True)
            ]
            wrong = rng.random(size) < noise
            said = np.where(wrong, rng.integers(TOPICS, size=size), topics)
            labels = [f"topic {topic:02d}" for topic in said.tolist()]
            writer.write_table(pa.table([texts, labels], schema=schema))


def accuracy(predicted: Path, test: Path) -> float:
    """The share of right predictions, one in each line."""
    import pyarrow.parquet as pq

    truth = pq.read_table(test, columns=["topic"]).column(0).to_pylist()
    found = predicted.read_text().splitlines()
    return float(np.mean([a == b for a, b in zip(found, truth, strict=True)]))


def main(
    texts: Annotated[int, Option(help="to train on")] = 1_000_000,
    passes: Annotated[str, Option(help="of streamsvm, each a run")] = "1,3",
    loss: Annotated[str, Option(help="of streamsvm")] = "ww",
    repeat: Annotated[int, Option(help="rounds, of which the fastest counts")] = 1,
    seed: int = 0,
    out: Out = None,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ProcessPoolExecutor(1) as pool:  # a command counts what the process held that started it
            pool.submit(generate, folder / "train.parquet", texts, seed, NOISE).result()
            pool.submit(generate, folder / "test.parquet", max(1000, texts // 10), seed + 1, 0.0).result()
        streamsvm, more = [sys.executable, "-m", "streamsvm"], ["--force", "--quiet"]
        convert = ["convert", "train.parquet", "--out", "train.zarr", "--text", "body", "--label", "topic"]
        fit = ["fit", "train.zarr", "--out", "run", "--memory", "1G", "--loss", loss]
        predict = ["predict", "run", "test.parquet", "--out", "labels"]
        other = [sys.executable, "-c", OTHER, "train.parquet", "test.parquet", "labels", TOPICS]
        ways: dict[str, list[list[Any]]] = {"SGDClassifier.partial_fit": [other]}
        for n in passes.split(","):
            stages = convert, [*fit, "--passes", n], predict
            ways[f"streamsvm, passes {n}"] = [[*streamsvm, *words, *more] for words in stages]
        best: dict[str, dict[str, Any]] = {}
        for _ in range(repeat):
            for way, commands in ways.items():
                costs = [run(words, cwd=folder) for words in commands]
                seconds = sum(cost.seconds for cost in costs)
                if way not in best or seconds < best[way]["seconds"]:
                    best[way] = {
                        "": way,
                        "accuracy": accuracy(folder / "labels", folder / "test.parquet"),
                        "seconds": seconds,
                        "CPU s": sum(cost.cpu_seconds for cost in costs),
                        "peak MB": max(cost.resident_memory for cost in costs) / 1e6,
                        "stages": " + ".join(f"{cost.seconds:.1f}" for cost in costs),
                    }
    print_records(f"{texts:,} texts", list(best.values()))
    write_json(out, {"texts": texts, "ways": list(best.values())})


if __name__ == "__main__":
    start(main, __doc__)
