"""Names of hashed features: the n-grams that most texts of a sample have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

_ALL_OF_FIRST = 2**10
_MAX_COUNTED = 2**17  # n-grams that are counted at a time
_MAX_NAMED = 2**14
_LEAST_TEXTS = 3  # of the sample that have an n-gram, lest what is in one letter alone be in models


class NgramCounts:
    """Numbers of texts that have an n-gram, estimated from a sample, in bounded memory.

    All of the first 2,048 texts are in the sample, every second of the next 2,048, every fourth of the next
    4,096, and so on: about a thousand of each doubling, so that texts in the order of their labels are
    there, too. If there are too many n-grams, the rarer half of them is forgotten (lossy counting, Manku and
    Motwani 2002). The counts depend on the texts and their order alone.
    """

    def __init__(self) -> None:
        self._n_texts = 0
        self._weight = 1  # of the last text of the sample
        self._counts: dict[str, int] = {}

    def weights_of_next(self, n: int) -> list[int]:
        """Return for how many texts each of the next `n` stands: 0 if it is not in the sample."""
        numbers = np.arange(self._n_texts, self._n_texts + n)
        self._n_texts += n
        every = 1 << np.maximum(np.frexp(numbers / _ALL_OF_FIRST)[1] - 1, 0).astype(np.int64)
        return np.where(numbers % every == 0, every, 0).tolist()

    def add(self, weights: Sequence[int], ngrams: Iterable[set[str]]) -> None:
        """Count the distinct n-grams of each text of the sample."""
        for weight, found in zip(filter(None, weights), ngrams, strict=True):
            self._weight = weight
            for ngram in found:
                self._counts[ngram] = self._counts.get(ngram, 0) + weight
            if len(self._counts) > _MAX_COUNTED:
                rare = int(np.median(np.fromiter(self._counts.values(), np.int64)))
                self._counts = {ngram: n for ngram, n in self._counts.items() if n > rare}

    def names(self, bits: int) -> str:
        """Return the features that the commonest n-grams are hashed to, with the commonest of each, as text.

        A line has the sign with which the n-gram is counted, the feature, a blank, and the n-gram. N-grams
        with line breaks are left out.
        """
        from sklearn.feature_extraction import FeatureHasher

        least = _LEAST_TEXTS * self._weight
        several = (ngram for ngram, n in self._counts.items() if n >= least and "\n" not in ngram)
        commonest = sorted(several, key=lambda ngram: (-self._counts[ngram], ngram))[:_MAX_NAMED]
        if not commonest:
            return ""
        hashed = FeatureHasher(2**bits, input_type="string").transform([ngram] for ngram in commonest)
        lines: dict[int, str] = {}
        for feature, sign, ngram in zip(hashed.indices.tolist(), hashed.data, commonest, strict=True):
            lines.setdefault(feature, f"{'-' if sign < 0 else '+'}{feature} {ngram}")
        return "\n".join(lines[feature] for feature in sorted(lines))
