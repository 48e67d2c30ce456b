"""Settings of how files that are no store are read: of `convert`, and of `fit` for such files."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

from streamsvm.settings.field import CheckedSettings, setting

_labels, _features, _text, _rows = (
    functools.partial(setting, group=heading) for heading in ("Labels", "Features", "Text columns", "Rows")
)


@dataclasses.dataclass(frozen=True)
class ReadingSettings(CheckedSettings):
    """Settings of reading, documented in `streamsvm_converters.convert`.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    format: str | None = _rows(
        str, None, "Kind of the files, if text has another suffix than that of its kind.",
        choices=("libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy"),
    )  # fmt: skip
    like: str | None = _labels(
        os.PathLike, None,
        "Store, run or model whose classes, index base and width are used, as for test data: values of other "
        "features are dropped and counted.",
        "Of a model that hashes features, only the classes are used. Tables are read as those that it was "
        "made from; AnnData is matched by the names of features.",
        address=True,
    )  # fmt: skip
    text: Sequence[str] = _text(
        tuple, (), "Columns of text whose hashed n-grams become the features, and no other column.",
    )  # fmt: skip
    analyzer: str | None = _text(
        str, None,
        "With text: n-grams of words (default), or of characters, also beyond (char) or only within words "
        "(char_wb).",
        choices=("word", "char", "char_wb"),
    )  # fmt: skip
    ngrams: tuple[int, int] | None = _text(
        range, None,
        "With text: the least and the largest length of n-grams, at most 100; by default 1 and 2.",
        most=100,
    )  # fmt: skip
    bits: int | None = _text(
        int, None, "With text: there are 2**bits features; by default 2**20.", least=1, most=30
    )
    drop: Sequence[str] = _features(
        tuple, (),
        "Columns of a table that are not used. All others, but the labels, become features: numbers and "
        "booleans as they are, and texts one feature for each of their values.",
    )  # fmt: skip
    categorical: Sequence[str] = _features(
        tuple, (), "Columns of numbers that are categories, such as codes."
    )
    missing: str = _features(
        str, "error",
        "What a missing number of a table becomes: an error; 0; the mean of its column; or 0, and a feature "
        "COLUMN=missing that is 1 there (indicator).",
        "The mean is over the rows that are kept; categories that lack values have such a feature, too. With "
        "`like` it is what the earlier data has.",
        choices=("error", "0", "mean", "indicator"),
    )  # fmt: skip
    labels_as: str | None = _labels(
        str, None,
        "How labels of text are read: as numbers, so that +1 and 1.0 are 1, and in text but LIBSVM's, NA and "
        "the like are missing; or as the text that they are. By default as those of like, or as numbers.",
        "Labels of tables keep their spelling in any case: ``01`` is a code.",
        choices=("numbers", "text"),
    )  # fmt: skip
    multilabel: bool = _labels(
        bool, False,
        "LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with a "
        "blank has none.",
        "A label that a row lists twice counts once.",
    )  # fmt: skip
    index_base: int | str = _features(
        int, "auto",
        "LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, explicit "
        "zeros included, else 1.",
        "With `like` it is that of its data, and must not contradict it.",
        words=("auto",), most=1,
    )  # fmt: skip
    n_features: int | None = _features(
        int, None,
        "LIBSVM text: number of features. By default the largest index determines it; fewer are an error.",
        least=1, most=2**62 - 1,
    )  # fmt: skip
    on_error: str = _rows(
        str, "raise",
        "Whether an invalid row (of a table: one with a missing or infinite number) is an error, or is "
        "dropped and counted; fix, for LIBSVM text, also sorts unsorted rows and sums duplicate indices.",
        choices=("raise", "skip", "fix"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._set("missing", str(self.missing))
        like = self.like
        super().__post_init__()
        if like is not None:
            self._set("like", os.fspath(like))  # as messages name it

    @property
    def of_texts(self) -> dict[str, Any]:
        """Record of the encoding of texts that are in memory."""
        return {
            "kind": "text",
            "columns": ["text"],
            "analyzer": self.analyzer or "word",
            "ngrams": list(self.ngrams or (1, 2)),
            "bits": self.bits or 20,
        }
