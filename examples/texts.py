"""Texts with topics, from a Parquet file to a Parquet file of predictions.

    pip install -e '.[text]'                     # in a copy of the repository
    python examples/texts.py                     # in a folder for the files that it writes

Data are generated, so that there is nothing to download; everything below "Convert" is as for millions of
texts. It takes some seconds, and half a minute more where kernels are compiled first. `examples/atlas.py`
uses the commands alone; here training is in Python, with the command above each step.
"""

import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamsvm

# -- Data: a column of text, and a column of topics ----------------------------------------------------
#
# The words of all topics are the same; each topic uses some of them more often. Frequencies fall as they
# do in languages, with the rank of the word.

TOPICS = ["films", "gardens", "medicine", "money", "music", "sport", "travel", "weather"]

rng = np.random.default_rng(0)
SYLLABLES = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
WORDS = np.unique(["".join(rng.choice(SYLLABLES, 3)) for _ in range(5000)])
FREQUENCY = (
    1 / rng.permutation(np.arange(10, len(WORDS) + 10)) * np.exp(rng.normal(size=(len(TOPICS), len(WORDS))))
)


def texts(n: int) -> tuple[list[str], list[str]]:
    """Texts of 25 words, and the topic of each."""
    topics = rng.integers(len(TOPICS), size=n)
    cdf = np.cumsum(FREQUENCY / FREQUENCY.sum(axis=1, keepdims=True), axis=1)
    chosen = [np.searchsorted(cdf[topic], rng.random(25) * cdf[topic, -1]) for topic in topics]
    return [" ".join(WORDS[words]) for words in chosen], [TOPICS[topic] for topic in topics]


body, topic = texts(8000)
pq.write_table(pa.table({"body": body, "topic": topic}), "texts.parquet")
body, true_topics = texts(1000)
pq.write_table(pa.table({"body": body}), "more.parquet")  # without topics: these are to be predicted

# -- Convert -------------------------------------------------------------------------------------------
#
#     streamsvm convert texts.parquet --out texts.zarr --text body --label topic
#
# Each text becomes the counts of its words and pairs of words, hashed to 2^20 features, in a store on disk
# whose rows are shuffled. How that was done is kept in the store, and later in the model.

report = streamsvm.convert(["texts.parquet"], "texts.zarr", text=["body"], label="topic")
print(f"stored: {report.n:,} texts of {report.n_classes} topics, {report.nnz / report.n:.0f} features a text")

# -- Train ---------------------------------------------------------------------------------------------
#
#     streamsvm fit texts.zarr --out run --transform df=-0.25,l2 --passes 1
#
# The transform gives rare words more weight, and each text the length 1 (docs/measurements/data.md compares
# several). The progressive accuracy is that of each text before it was learned from: with shuffled rows an
# honest estimate that needs no test data.

result = streamsvm.fit("texts.zarr", out="run", transform="df=-0.25,l2", passes=1)
print(f"trained: progressive accuracy {result.progressive_accuracy:.3f}")

# -- Predict -------------------------------------------------------------------------------------------
#
#     streamsvm predict run more.parquet --out predictions.parquet
#
# The command encodes new texts as the training did, as many at a time as fit into its memory.

command = ["streamsvm", "predict", "run", "more.parquet", "--out", "predictions.parquet", "--quiet"]
subprocess.run(command, check=True)

# The table has the number of each text in the file, its topic, the score of that, and how far it is ahead
# of the second best.

predicted = pq.read_table("predictions.parquet")
for row in predicted.slice(0, 5).to_pylist():
    print(row)
right = np.array(predicted["label"].to_pylist()) == np.array(true_topics)
print(f"right: {right.mean():.3f} of {len(right):,} further texts")
