"""Short texts from Parquet to predictions, against scikit-learn's HashingVectorizer and SGDClassifier.

The texts are generated from a seed: words with Zipf's frequencies, a part of them from a vocabulary of the
topic, which overlaps with those of others, and a share of wrong labels in the training data. Each side runs
in processes of its own, one side after the other, and reads the same files in batches. Peak memory is the
largest sum over a side's processes of their proportional shares (PSS).
"""

from __future__ import annotations

import argparse
import json
import resource
import string
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

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


def run(commands: list[list[Any]]) -> dict[str, Any]:
    """Run commands one after another; return their seconds, processor seconds, and peak memory."""
    before, began, peak = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0
    stages = []
    for command in commands:
        stage = time.monotonic()
        words = [str(word) for word in command]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        output: list[bytes] = []
        reader = threading.Thread(target=lambda: output.extend(process.communicate()), daemon=True)  # noqa: B023
        reader.start()
        while reader.is_alive():
            peak = max(peak, sum(map(_pss, _tree(process.pid))))
            reader.join(0.1)
        if process.returncode:
            raise SystemExit(f"{command}: {output[1].decode()}")
        stages.append(time.monotonic() - stage)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": time.monotonic() - began, "cpu": cpu, "peak": peak, "stages": stages}


def _tree(pid: int) -> list[int]:
    """A process and all of its children."""
    try:
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return [pid, *(each for child in children for each in _tree(child))]


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def accuracy(predicted: Path, test: Path) -> float:
    """The share of right predictions, one in each line."""
    import pyarrow.parquet as pq

    truth = pq.read_table(test, columns=["topic"]).column(0).to_pylist()
    found = predicted.read_text().splitlines()
    return float(np.mean([a == b for a, b in zip(found, truth, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=1_000_000, help="training texts (default: 1,000,000)")
    parser.add_argument("--passes", default="1,3", help="passes of streamsvm, each a run (default: 1,3)")
    parser.add_argument("--loss", default="ww", help="loss of streamsvm (default: ww)")
    parser.add_argument("--repeat", type=int, default=1, help="rounds; the fastest counts (default: 1)")
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, test = folder / "train.parquet", folder / "test.parquet"
        generate(train, options.texts, options.seed, NOISE)
        generate(test, max(1000, options.texts // 10), options.seed + 1, 0.0)
        command = Path(sys.executable).with_name("streamsvm")
        store, labels = folder / "train.zarr", folder / "labels"
        ways = {"SGDClassifier.partial_fit": [[sys.executable, "-c", OTHER, train, test, labels, TOPICS]]}
        columns = ["--text", "body", "--label", "topic"]
        settings = ["--memory", "1G", "--loss", options.loss]
        more = ["--force", "--quiet"]
        for passes in options.passes.split(","):
            ways[f"streamsvm, passes {passes}"] = [
                [command, "convert", train, "--out", store, *columns, *more],
                [command, "fit", store, "--out", folder / "run", "--passes", passes, *settings, *more],
                [command, "predict", folder / "run", test, "--out", labels, "--force", "--quiet"],
            ]
        figures: dict[str, dict[str, Any]] = {}
        for _ in range(options.repeat):
            for way, commands in ways.items():
                found = run(commands)
                found["accuracy"] = accuracy(folder / "labels", test)
                if way not in figures or found["seconds"] < figures[way]["seconds"]:
                    figures[way] = found
    first = next(iter(figures.values()))
    print(f"{'':28}{'accuracy':>9}{'seconds':>9}{'CPU s':>8}{'peak MB':>9}{'times faster':>14}  stages")
    for way, found in figures.items():
        stages = " + ".join(f"{each:.1f}" for each in found["stages"])
        print(
            f"{way:28}{found['accuracy']:9.4f}{found['seconds']:9.1f}{found['cpu']:8.1f}"
            f"{found['peak'] / 1e6:9.0f}{first['seconds'] / found['seconds']:14.2f}  {stages}"
        )
    if options.out:
        options.out.write_text(json.dumps({"texts": options.texts, "ways": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
