"""Seeded sparse multi-class data of any size, as LIBSVM text or as a store (see README.md).

A row is a short text. Its tokens are drawn from the words of its class's topic or from a background, both
by Zipf's law, until it has as many different words as its log-normal length says; values are tf-idf, of unit
norm, rounded to five decimals. Every row depends on (seed, part, its number) alone, so a smaller size is a
prefix of a larger one, and the parts "train" and "test" are samples of one distribution. The store has the
rows of the text.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numba
import numpy as np

from streamsvm.base.format import index_dtype
from streamsvm.base.label_values import INTEGER
from streamsvm.base.text import parse_size
from streamsvm.data.rows import Rows
from streamsvm.kernels.random import GAMMA, mix
from streamsvm.store import Contents, StoreWriter

PARTS = ("train", "test")
VALUE_BYTES = 8  # of a non-zero in a store: a float32 and an int32
SPREAD = 0.6  # standard deviation of the logarithm of a row's length
DECIMALS = 100_000
_BLOCK_NNZ = 2**20
_LENGTHS_AT_ONCE = 2**20  # rows
_DRAWS = 16  # tokens drawn a word, at most; then any word will do
_PLACE_BITS = 20  # for a place in a row, below a row's number or a word's
_LONGEST = 2**_PLACE_BITS - 1


class Distribution(NamedTuple):
    """What rows are drawn from; the defaults are those of the command."""

    classes: int = 50
    features: int = 300_000
    nnz: int = 100  # mean of a row
    noise: float = 0.05  # fraction of labels replaced by another class
    seed: int = 0
    exponent: float = 1.1  # of the words' Zipf law
    class_exponent: float = 0.5  # of the classes' sizes; 0 is even
    topic: float = 0.4  # mean share of a row's tokens that come from its class's topic
    topic_words: int = 100_000
    topic_exponent: float = 0.5


class Block(NamedTuple):
    """Rows as the text gives them: values in units of 1e-5."""

    data: np.ndarray  # int32
    indices: np.ndarray  # from 0
    indptr: np.ndarray
    labels: np.ndarray


class Generator:
    """Rows of a distribution, block by block.

    Parameters
    ----------
    distribution : Distribution
    part : {"train", "test"}
    """

    def __init__(self, distribution: Distribution, part: str) -> None:
        self.distribution = of = distribution
        # Compiled code hands back a Python number, which it would take for a signed one next time.
        self._stream = np.uint64(state_of_row(np.uint64(of.seed), PARTS.index(part)))
        self._mean_log = math.log(of.nnz) - SPREAD**2 / 2
        sizes = np.arange(1, of.classes + 1, dtype=np.float64) ** -of.class_exponent
        self._up_to_class = np.cumsum(sizes / sizes.sum())
        self._background = zipf_table(of.features, of.exponent)
        self._topic = zipf_table(min(of.topic_words, of.features), of.topic_exponent)
        # Of the word of each rank: its number, all over the range, and what it weighs.
        step = next(s for s in range(int(of.features * 0.618) | 1, 2**62) if math.gcd(s, of.features) == 1)
        ranks = np.arange(of.features, dtype=np.int64)
        self._word = (ranks * step % of.features).astype(index_dtype(of.features))
        chance = (ranks + 1.0) ** -of.exponent
        self._idf = np.log(1 + 1 / np.minimum(1, of.nnz * chance / chance.sum())).astype(np.float32)

    def lengths(self, start: int, stop: int) -> np.ndarray:
        """Non-zeros of rows `start` to `stop`, int64."""
        out = np.empty(stop - start, np.int64)
        draw_lengths(self._stream, start, self._mean_log, self.distribution.features, out)
        return out

    def rows_of_size(self, size: int) -> int:
        """How many rows fill `size` bytes of a store."""
        start, nnz = 0, size // VALUE_BYTES
        while True:
            ends = np.cumsum(self.lengths(start, start + _LENGTHS_AT_ONCE))
            if ends[-1] >= nnz:
                return start + int(np.searchsorted(ends, nnz)) + 1
            start, nnz = start + len(ends), nnz - int(ends[-1])

    def count_nnz(self, n: int) -> int:
        """Non-zeros of the first `n` rows."""
        starts = range(0, n, _LENGTHS_AT_ONCE)
        return sum(int(self.lengths(at, min(at + _LENGTHS_AT_ONCE, n)).sum()) for at in starts)

    def blocks(self, n: int) -> Iterator[Block]:
        """The first `n` rows, in blocks of bounded size."""
        of = self.distribution
        seen = np.full(of.features, -1, np.int64)
        step = max(1, _BLOCK_NNZ // of.nnz)
        for start in range(0, n, step):
            lengths = self.lengths(start, min(start + step, n))
            indptr = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=indptr[1:])
            data = np.empty(indptr[-1], np.int32)
            indices = np.empty(indptr[-1], self._word.dtype)
            labels = np.empty(len(lengths), np.int32)
            draw_rows(
                self._stream, start, self._up_to_class, of.noise, of.topic, self._background, self._topic,
                self._word, self._idf, seen, data, indices, indptr, labels,
            )  # fmt: skip
            yield Block(data, indices, indptr, labels)

    def write_text(self, file: BinaryIO, n: int) -> None:
        """The first `n` rows as LIBSVM text, features counted from 1."""
        for block in self.blocks(n):
            text = np.empty(24 * len(block.labels) + 30 * len(block.data), np.uint8)
            file.write(text[: format_rows(*block, text)].data)

    def write_store(self, path: Path, n: int) -> None:
        """The first `n` rows as the store that `streamsvm convert --no-shuffle` makes of the text."""
        of = self.distribution
        contents = Contents(
            n=n, d=of.features, nnz=self.count_nnz(n), n_classes=of.classes, dtype="float32", index_base=1,
            label_dtype=INTEGER,
        )  # fmt: skip
        classes = [str(c) for c in range(of.classes)]
        # The rows are in random order already.
        with StoreWriter(path, contents, classes, meta={"shuffle_seed": 0}) as writer:
            start = 0
            for block in self.blocks(n):
                stop = start + len(block.labels)
                data = (block.data / DECIMALS).astype(np.float32)
                writer.append(Rows(data, *block[1:], np.empty(0)), np.arange(start, stop))
                start = stop
            writer.finish()


def zipf_table(n: int, exponent: float) -> np.ndarray:
    """Quantiles of Zipf's law over 0..n - 1, from 0 to 1 in equal steps, to interpolate between.

    Of the continuous law, which gives the first ranks a little less than the discrete one: a draw costs
    one look-up, and no search.
    """
    u = np.linspace(0, 1, 2**15 + 1)
    top = 1 - exponent
    x = (n + 1) ** u if abs(top) < 1e-9 else (1 + u * ((n + 1) ** top - 1)) ** (1 / top)
    return (x - 1).astype(np.float32)


# -- kernels ---------------------------------------------------------------------------------------


@numba.njit(cache=True)
def uniform(state):
    """In [0, 1)."""
    return (mix(state) >> np.uint64(11)) * 2.0**-53


@numba.njit(cache=True)
def state_of_row(stream, row):
    """Where the row's own numbers start; adding `GAMMA` leads to the next."""
    return mix(stream + (np.uint64(row) + np.uint64(1)) * GAMMA)


@numba.njit(cache=True)
def draw_lengths(stream, start, mean_log, features, out):
    """Log-normal lengths of the rows from `start` on, from the first two numbers of each row."""
    longest = max(1, min(features // 2, _LONGEST))
    for i in range(len(out)):
        state = state_of_row(stream, start + i)
        radius = math.sqrt(-2 * math.log(1 - uniform(state)))
        normal = radius * math.cos(2 * math.pi * uniform(state + GAMMA))
        out[i] = min(max(1, round(math.exp(mean_log + SPREAD * normal))), longest)


@numba.njit(cache=True)
def quantile(table, bits):
    """The rank at which 39 random bits stand in `table`: 15 for the step, 24 for the place within."""
    step = np.int64(bits >> np.uint64(24))
    within = np.float32(bits & np.uint64(2**24 - 1)) * np.float32(2.0**-24)
    return np.int64(table[step] + (table[step + 1] - table[step]) * within)


@numba.njit(cache=True)
def draw_rows(
    stream, start, up_to_class, noise, topic, background, topic_table,
    word, idf, seen, data, indices, indptr, labels,
):  # fmt: skip
    """Fill a block with the rows from `start` on; `seen` remembers where a word stood last, in any block."""
    k, features = len(up_to_class), len(word)
    ranks = np.empty(_LONGEST, np.int64)
    times = np.empty(_LONGEST, np.int64)
    keys = np.empty(_LONGEST, np.int64)
    counts = np.empty(_LONGEST + 2, np.int64)
    sorted_keys = np.empty(_LONGEST, np.int64)
    values = np.empty(_LONGEST, np.float32)
    log1 = 1 + np.log(np.maximum(1, np.arange(256)).astype(np.float32))
    for i in range(len(labels)):
        state = state_of_row(stream, start + i) + np.uint64(2) * GAMMA
        c = min(np.searchsorted(up_to_class, uniform(state), side="right"), k - 1)
        mislabelled = uniform(state + GAMMA)
        labels[i] = c
        if mislabelled < noise and k > 1:  # what is left of the number decides which other
            labels[i] = (c + 1 + min(np.int64(mislabelled / noise * (k - 1)), k - 2)) % k
        share = np.uint64(2**24 * min(1.0, 2 * topic * uniform(state + np.uint64(2) * GAMMA)))
        state += np.uint64(3) * GAMMA
        first = indptr[i]
        length = indptr[i + 1] - first

        mark = np.int64(start + i) << _PLACE_BITS
        found = drawn = 0
        while found < length:
            bits = mix(state)
            state += GAMMA
            drawn += 1
            rest = bits >> np.uint64(25)
            if drawn > _DRAWS * length:  # a long row of few words: any word will do
                rank = np.int64(rest % np.uint64(features))
            elif (bits & np.uint64(2**24 - 1)) < share:
                # A word of the topic: anywhere in the vocabulary, rather among the frequent ones.
                u = uniform(np.uint64(c * 2**32 + quantile(topic_table, rest)) * GAMMA)
                rank = np.int64(features * u * u)
            else:
                rank = quantile(background, rest)
            rank = min(rank, features - 1)
            place = seen[rank] - mark
            if 0 <= place < found:
                times[place] += 1
            else:
                seen[rank] = mark + found
                ranks[found], times[found] = rank, 1
                found += 1

        norm2 = np.float32(0)
        for p in range(length):
            values[p] = log1[min(times[p], 255)] * idf[ranks[p]]
            norm2 += values[p] * values[p]
            keys[p] = (np.int64(word[ranks[p]]) << _PLACE_BITS) + p
        scale = DECIMALS / math.sqrt(norm2)
        sort_spread(keys[:length], features << _PLACE_BITS, counts, sorted_keys)
        for p in range(length):
            key = sorted_keys[p]
            indices[first + p] = key >> _PLACE_BITS
            data[first + p] = max(1, np.int64(values[key & (2**_PLACE_BITS - 1)] * scale + 0.5))


@numba.njit(cache=True)
def sort_spread(keys, end, counts, out):
    """Sort `keys`, spread evenly over 0 to `end`, into `out`: nearly by buckets, then by insertion."""
    n = len(keys)
    per_key = n * (1 - 1e-9) / end  # of the last key too, less than n
    counts[: n + 1] = 0
    for key in keys:
        counts[np.int64(key * per_key) + 1] += 1
    for b in range(n):
        counts[b + 1] += counts[b]
    for key in keys:
        b = np.int64(key * per_key)
        out[counts[b]] = key
        counts[b] += 1
    for p in range(1, n):
        key, q = out[p], p
        while q > 0 and out[q - 1] > key:
            out[q] = out[q - 1]
            q -= 1
        out[q] = key


@numba.njit(cache=True)
def format_rows(data, indices, indptr, labels, text):
    """Write rows as LIBSVM text into `text`; return how many bytes."""
    at = 0
    for i in range(len(labels)):
        at = put_number(text, at, labels[i])
        for p in range(indptr[i], indptr[i + 1]):
            text[at] = ord(" ")
            at = put_number(text, at + 1, indices[p] + 1)
            text[at] = ord(":")
            text[at + 1] = ord("0") + data[p] // DECIMALS
            text[at + 2] = ord(".")
            at += 3
            left = data[p] % DECIMALS
            for place in range(4, -1, -1):
                text[at + place] = ord("0") + left % 10
                left //= 10
            at += 5
        text[at] = ord("\n")
        at += 1
    return at


@numba.njit(cache=True)
def put_number(text, at, number):
    """Write a whole number, at least 0, in decimal; return where it ends."""
    end, left = at + 1, number
    while left >= 10:
        left //= 10
        end += 1
    left = number
    for place in range(end - 1, at - 1, -1):
        text[place] = ord("0") + left % 10
        left //= 10
    return end


# -- command ---------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    of = Distribution()
    parser.add_argument("--rows", type=int, metavar="N")
    parser.add_argument(
        "--size", type=parse_size, metavar="BYTES",
        help="instead of rows: of the store, 8 a non-zero, as 500M or 4G; the text has 1.8 times as many",
    )  # fmt: skip
    parser.add_argument("--part", choices=PARTS, default=PARTS[0])
    parser.add_argument(
        "--out", default="-", metavar="PATH", help="text, - for stdout, or a store: .zarr, .h5"
    )
    for name, default in of._asdict().items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, metavar="X")
    options = parser.parse_args()
    if (options.rows is None) == (options.size is None):
        parser.error("give --rows or --size")
    given = Distribution(*(getattr(options, name) for name in of._fields))
    if min(given.classes, given.features, given.nnz, given.topic_words) < 1 or not 0 <= given.noise <= 1:
        parser.error("classes, features, nnz and topic words are at least 1, noise is 0 to 1")

    generator = Generator(given, options.part)
    n = generator.rows_of_size(options.size) if options.rows is None else options.rows
    if options.out == "-":
        generator.write_text(sys.stdout.buffer, n)
    elif Path(options.out).suffix in (".zarr", ".h5", ".hdf5", ".h5ad"):
        generator.write_store(Path(options.out), n)
    else:
        with open(options.out, "wb") as file:
            generator.write_text(file, n)


if __name__ == "__main__":
    main()
