"""Find the labels of the rows in a text block: their offsets and their distinct names."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from streamsvm_converters.libsvm.lines import COMMA, Parsed
from streamsvm_converters.libsvm.plain_parser import label_of

_ALL_BITS = np.uint64(2**64 - 1)


class BlockLabels(NamedTuple):
    """Labels of the rows in a block; those of row ``i`` are ``indptr[i]:indptr[i + 1]``."""

    names: list[str | None]  # distinct labels; None if a label is not UTF-8 or contains a control character
    numbers: np.ndarray  # position of each label in `names`
    at: np.ndarray  # offset of each label in the text
    indptr: np.ndarray

    def select_rows(self, kept: np.ndarray) -> BlockLabels:
        """Return the labels of the rows selected by the mask `kept`."""
        counts = np.diff(self.indptr)
        labels = np.repeat(kept, counts)
        indptr = np.concatenate([[0], np.cumsum(counts[kept])])
        return BlockLabels(self.names, self.numbers[labels], self.at[labels], indptr)


def read_labels(text: np.ndarray, parsed: Parsed, n_rows: int, *, lists: bool) -> BlockLabels:
    """Return the labels of rows, and mark rows with invalid labels as faulty.

    If `lists` is True, labels are separated by commas.
    """
    rows = np.flatnonzero(~parsed.faulty[:n_rows] & (parsed.label_end[:n_rows] > parsed.label_at[:n_rows]))
    at, end = parsed.label_at[rows], parsed.label_end[rows]
    if lists and len(rows):
        commas = at[0] + np.flatnonzero(text[at[0] : end[-1]] == COMMA)
        owners = np.searchsorted(at, commas, "right") - 1
        inside = commas < end[owners]
        rows = np.sort(np.concatenate([rows, rows[owners[inside]]]))
        at = np.sort(np.concatenate([at, commas[inside] + 1]))
        end = np.sort(np.concatenate([end, commas[inside]]))
    texts, numbers = distinct_texts(text, at, end)
    names = [label_of(text) for text in texts]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    labels = BlockLabels(names, numbers, at, indptr)
    if None in names:
        invalid = [number for number, name in enumerate(names) if name is None]
        parsed.faulty[rows[np.isin(numbers, invalid)]] = True
    return labels


def distinct_texts(text: np.ndarray, at: np.ndarray, end: np.ndarray) -> tuple[list[bytes], np.ndarray]:
    """Return the distinct strings among ``text[at:end]``, and the position of each string among them.

    The strings must not contain zero bytes.
    """
    texts: list[bytes] = []
    numbers = np.empty(len(at), np.int64)
    widths = np.maximum(end - at, 8)
    # Strings of equal width are processed together, so that copies are no larger than the text.
    for width in [8, *np.unique(widths[widths > 8]).tolist()]:
        rows = np.flatnonzero(widths == width)
        windows = np.ndarray(len(text) - width + 1, f"S{width}" if width > 8 else "<u8", text, strides=(1,))
        words = windows[at[rows]]
        if width == 8:
            words &= _ALL_BITS >> (64 - 8 * (end - at)[rows]).astype(np.uint64)
        distinct, inverse = np.unique(words, return_inverse=True)
        numbers[rows] = len(texts) + inverse
        texts += distinct.view(f"S{width}").tolist()
    return texts, numbers
