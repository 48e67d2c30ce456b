"""Settings for reading files other than stores, for `convert` and `fit`."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Annotated, Any

from streamsvm.settings import checks
from streamsvm.settings.field import MATRIX, CheckedSettings, setting

_MAX_NGRAM = 100
_labels, _features, _text, _rows, _computing = (
    functools.partial(setting, group=heading)
    for heading in ("Labels", "Features", "Text columns", "Rows", "Computing")
)


def _character(value: Any) -> str:
    if len(value) != 1 or not value.isascii() or value in '"\r\n':
        raise ValueError
    return str(value)


def _lengths(value: Any) -> tuple[int, int]:
    low, high = map(checks.whole(1, _MAX_NGRAM).take, value)
    if low > high:
        raise ValueError
    return low, high


def _range(text: str) -> Any:
    """Parse a range such as 1-3; return other text unchanged, for `_lengths` to reject."""
    low, _, high = text.partition("-")
    return (int(low), int(high or low)) if (low + (high or low)).isdecimal() else text


_FORMATS = checks.one_of("libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy")
_NAMES = checks.Check(
    "str | Sequence[str]", "column names",
    lambda value: tuple(map(checks.TEXT.take, [value] if isinstance(value, str) else value)),
    lambda text: tuple(filter(None, text.split(","))), "A,B",
)  # fmt: skip
# Settings for the text columns of a table, and for all its columns.
TEXT_SETTINGS = frozenset({"analyzer", "ngrams", "bits"})
COLUMN_SETTINGS = frozenset({"columns", "drop", "categorical", "missing", "text"}) | TEXT_SETTINGS
_CHARACTER = checks.Check("str", "one ASCII character", _character, metavar="CHARACTER")
_LENGTHS = checks.Check(
    "tuple[int, int]", "the minimum and maximum length, such as 1 and 2", _lengths, _range, "N-M"
)


@dataclasses.dataclass(frozen=True)
class DataSettings(CheckedSettings):
    """Settings, shared by all functions that read data, for the labels and the matrix to read."""

    label: str | None = _labels(
        "Label column of a table, or of obs of AnnData that was not written by convert. For "
        "scoring, the default is the column used in training.",
        "Or the array with the labels in an .npz file; for AnnData in memory, also the name of an indicator "
        "matrix in ``obsm``. Rows without a label are left out.", scope=MATRIX,
    )  # fmt: skip
    labels: Annotated[str | None, checks.PATH] = _labels(
        "Label file of a matrix (.npy, .npz, Zarr, lists): .npy, or text, one per line.", instead="pass y"
    )
    layer: str | None = _features("Layer of AnnData to read instead of X.", scope=MATRIX)
    raw: bool = _features("Read raw.X of AnnData, with its own features.", default=False, scope=MATRIX)
    obsm: str | None = _features(
        "Entry of obsm of AnnData to read instead of X, such as an embedding.", scope=MATRIX
    )
    cache: Annotated[str | None, checks.PATH] = _computing(
        "Folder for copies of remote data; by default in the run directory, or temporary if there is none.",
        "All workers of a cluster must have access to it.", changeable="Folder for copies of remote data.",
    )  # fmt: skip

    @property
    def of_store(self) -> dict[str, Any]:
        """Arguments for `streamsvm.store.open_store`."""
        return {name: getattr(self, name) for name in ("label", "layer", "raw", "obsm", "labels")}


@dataclasses.dataclass(frozen=True)
class ReadingSettings(CheckedSettings):
    """Settings for reading files, documented in `streamsvm_converters.convert`."""

    format: Annotated[str | None, _FORMATS] = _rows(
        "Format of the files; needed only for text without the usual suffix of its format."
    )
    delimiter: Annotated[str | None, _CHARACTER] = _rows(
        "CSV: character between fields; by default the most frequent of , ; | and tab in line 1."
    )
    decimal: Annotated[str | None, checks.one_of(".", ",")] = _rows(
        "CSV: decimal mark; by default a comma if it separates no fields and makes more columns numeric."
    )
    like: Annotated[str | None, checks.ADDRESS._replace(take=os.fspath)] = _labels(
        "Store, run or model whose classes, features and index base are used, as for test data. Values of "
        "other features are dropped and counted.",
        "From a model that hashes features, only the classes are used. Tables are read like the table of "
        "the earlier data. AnnData is matched by feature names.",
    )  # fmt: skip
    text: Annotated[Sequence[str], _NAMES] = _text(
        "Text columns whose hashed n-grams become features; list other features in columns.", default=()
    )
    analyzer: Annotated[str | None, checks.one_of("word", "char", "char_wb")] = _text(
        "With text: n-grams of words (word, the default), of characters across words (char), or of "
        "characters within words (char_wb)."
    )
    ngrams: Annotated[tuple[int, int] | None, _LENGTHS] = _text(
        "With text: minimum and maximum length of n-grams, at most 100; by default 1 and 2."
    )
    bits: Annotated[int | None, checks.whole(1, 30)] = _text(
        "With text: the number of features is 2**bits, by default 2**20."
    )
    columns: Annotated[Sequence[str], _NAMES] = _features(
        "Columns of a table that become features: numbers and booleans unchanged, dates as days and years, "
        "text as one feature for each value. By default all but labels, or none if text is set.", default=(),
    )  # fmt: skip
    drop: Annotated[Sequence[str], _NAMES] = _features(
        "Columns of a table that do not become features.", default=()
    )
    categorical: Annotated[Sequence[str], _NAMES] = _features(
        "Columns of numbers or dates that are categories, such as codes.", default=()
    )
    missing: Annotated[str, checks.one_of("error", "0", "mean", "indicator")] = _features(
        "How to treat a missing number or date of a table: as an error; as 0; as the mean of its column; or "
        "as 0, with an additional feature COLUMN=missing that is 1 in this row (indicator).",
        "The mean is over the rows that are kept. A categorical column with missing values also gets this "
        "feature. With `like`, the earlier data determines this setting.", default="error",
    )  # fmt: skip
    labels_as: Annotated[str | None, checks.one_of("numbers", "text")] = _labels(
        "How to read labels in text: as numbers, so that +1 and 1.0 are 1, and NA and the like are missing "
        "except in LIBSVM text; or as text, unchanged. By default as in like, or as numbers.",
        "Labels of tables always keep their spelling: ``01`` is a code.",
    )  # fmt: skip
    multilabel: bool = _labels(
        "LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with "
        "whitespace has no label.", "A label that a row repeats is counted once.", default=False,
    )  # fmt: skip
    index_base: Annotated[int | str, checks.or_word("auto", checks.whole(0, 1))] = _features(
        "LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, even if "
        "its value is 0, and 1 otherwise.",
        "With `like`, the index base of the earlier data is used; another value is an error.", default="auto",
    )  # fmt: skip
    n_features: Annotated[int | None, checks.whole(1, 2**62 - 1)] = _features(
        "LIBSVM text: number of features; by default from the largest index. A larger index is an error."
    )
    on_error: Annotated[str, checks.one_of("raise", "skip", "fix")] = _rows(
        "Whether an invalid row is an error, or is dropped and counted; in a table, a missing or infinite "
        "number makes a row invalid. For LIBSVM text, fix also sorts unsorted rows and sums duplicate "
        "indices.", default="raise",
    )  # fmt: skip

    @property
    def of_texts(self) -> dict[str, Any]:
        """Encoding record for text documents in memory, which form one column."""
        return {
            "columns": ["text"],
            "analyzer": self.analyzer or "word",
            "ngrams": list(self.ngrams or (1, 2)),
            "bits": self.bits or 20,
            "norm": "l2" if self.columns else None,  # otherwise long documents dominate other columns
        }
