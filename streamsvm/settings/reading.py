"""Settings of reading files that are not stores, for `convert` and `fit`."""

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
    least, most = map(checks.whole(1, _MAX_NGRAM).take, value)
    if least > most:
        raise ValueError
    return least, most


def _range(text: str) -> Any:
    """Return the lengths in a text such as 1-3, or other text, which `_lengths` refuses."""
    least, _, most = text.partition("-")
    return (int(least), int(most or least)) if (least + (most or least)).isdecimal() else text


_FORMATS = checks.one_of("libsvm", "csv", "tsv", "jsonl", "parquet", "anndata", "npz", "npy")
_NAMES = checks.Check(
    "str | Sequence[str]", "names of columns",
    lambda value: tuple(map(checks.TEXT.take, [value] if isinstance(value, str) else value)),
    lambda text: tuple(filter(None, text.split(","))), "A,B",
)  # fmt: skip
# Names of the settings of the columns of a table, and of its columns of text.
TEXT_SETTINGS = frozenset({"analyzer", "ngrams", "bits"})
COLUMN_SETTINGS = frozenset({"columns", "drop", "categorical", "missing", "text"}) | TEXT_SETTINGS
_CHARACTER = checks.Check("str", "one ASCII character", _character, metavar="CHARACTER")
_LENGTHS = checks.Check(
    "tuple[int, int]", "the least and the largest length, as 1 and 2", _lengths, _range, "N-M"
)


@dataclasses.dataclass(frozen=True)
class DataSettings(CheckedSettings):
    """Settings of all functions that read data: the labels and the matrix, of several that data has."""

    label: str | None = _labels(
        "Column with the labels: of a table, or of obs of AnnData that was not written by convert; to score, "
        "by default that of the training.",
        "Or the array with them in an .npz file; of AnnData in memory, also the name of an indicator matrix "
        "in ``obsm``. Rows without a label are left out.", scope=MATRIX,
    )  # fmt: skip
    labels: Annotated[str | None, checks.PATH] = _labels(
        "Labels of a matrix (.npy, .npz, Zarr, lists): .npy, or text with one a line.", instead="give y"
    )
    layer: str | None = _features("Layer of AnnData to read instead of X.", scope=MATRIX)
    raw: bool = _features("Read raw.X of AnnData, with its own features.", default=False, scope=MATRIX)
    obsm: str | None = _features(
        "Entry of obsm of AnnData to read instead of X, such as an embedding.", scope=MATRIX
    )
    cache: Annotated[str | None, checks.PATH] = _computing(
        "Folder for copies of data at addresses; by default in the run, or temporary.",
        "All workers of a cluster must see it.", changeable="Folder for copies of data at addresses.",
    )  # fmt: skip

    @property
    def of_store(self) -> dict[str, Any]:
        """Those that `streamsvm.store.open_store` takes, too."""
        return {name: getattr(self, name) for name in ("label", "layer", "raw", "obsm", "labels")}


@dataclasses.dataclass(frozen=True)
class ReadingSettings(CheckedSettings):
    """Settings of reading, documented in `streamsvm_converters.convert`.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    format: Annotated[str | None, _FORMATS] = _rows(
        "Kind of the files, if text has another suffix than that of its kind."
    )
    delimiter: Annotated[str | None, _CHARACTER] = _rows(
        "CSV: character between fields; by default the one of , ; | and tab that line 1 has most often."
    )
    decimal: Annotated[str | None, checks.one_of(".", ",")] = _rows(
        "CSV: the decimal mark; by default a comma if it separates no fields and more columns are numbers."
    )
    like: Annotated[str | None, checks.ADDRESS._replace(take=os.fspath)] = _labels(
        "Store, run or model whose classes, index base and width are used, as for test data: values of other "
        "features are dropped and counted.",
        "Of a model that hashes features, only the classes are used. Tables are read as those that it was "
        "made from; AnnData is matched by the names of features.",
    )
    text: Annotated[Sequence[str], _NAMES] = _text(
        "Columns of text whose hashed n-grams become the features, besides those in columns.", default=()
    )
    analyzer: Annotated[str | None, checks.one_of("word", "char", "char_wb")] = _text(
        "With text: n-grams of words (default), or of characters, also beyond (char) or only within words "
        "(char_wb)."
    )
    ngrams: Annotated[tuple[int, int] | None, _LENGTHS] = _text(
        "With text: the least and the largest length of n-grams, at most 100; by default 1 and 2."
    )
    bits: Annotated[int | None, checks.whole(1, 30)] = _text(
        "With text: there are 2**bits features; by default 2**20."
    )
    columns: Annotated[Sequence[str], _NAMES] = _features(
        "Columns of a table that become features: numbers and booleans as they are, dates as days and years, "
        "texts one feature for each value. By default all but the labels, or none with text.", default=(),
    )  # fmt: skip
    drop: Annotated[Sequence[str], _NAMES] = _features(
        "Columns of a table that become no features.", default=()
    )
    categorical: Annotated[Sequence[str], _NAMES] = _features(
        "Columns of numbers or dates that are categories, such as codes.", default=()
    )
    missing: Annotated[str, checks.one_of("error", "0", "mean", "indicator")] = _features(
        "What a missing number or date of a table becomes: an error; 0; the mean of its column; or 0, and a "
        "feature COLUMN=missing that is 1 there (indicator).",
        "The mean is over the rows that are kept; categories that lack values have such a feature, too. With "
        "`like` it is what the earlier data has.", default="error",
    )  # fmt: skip
    labels_as: Annotated[str | None, checks.one_of("numbers", "text")] = _labels(
        "How labels of text are read: as numbers, so that +1 and 1.0 are 1, and in text but LIBSVM's, NA and "
        "the like are missing; or as the text that they are. By default as those of like, or as numbers.",
        "Labels of tables keep their spelling in any case: ``01`` is a code.",
    )
    multilabel: bool = _labels(
        "LIBSVM text: commas separate several labels of a row (1,5,7 1:0.3), and a line that begins with a "
        "blank has none.",
        "A label that a row lists twice counts once.", default=False,
    )  # fmt: skip
    index_base: Annotated[int | str, checks.or_word("auto", checks.whole(0, 1))] = _features(
        "LIBSVM text: index of the first feature. auto is 0 if any row that is kept has an index 0, explicit "
        "zeros included, else 1.",
        "With `like` it is that of its data, and must not contradict it.", default="auto",
    )  # fmt: skip
    n_features: Annotated[int | None, checks.whole(1, 2**62 - 1)] = _features(
        "LIBSVM text: number of features. By default the largest index determines it; fewer are an error."
    )
    on_error: Annotated[str, checks.one_of("raise", "skip", "fix")] = _rows(
        "Whether an invalid row (of a table: one with a missing or infinite number) is an error, or is "
        "dropped and counted; fix, for LIBSVM text, also sorts unsorted rows and sums duplicate indices.",
        default="raise",
    )

    @property
    def of_texts(self) -> dict[str, Any]:
        """Record of the encoding of texts; its column is that of texts in memory."""
        return {
            "columns": ["text"],
            "analyzer": self.analyzer or "word",
            "ngrams": list(self.ngrams or (1, 2)),
            "bits": self.bits or 20,
            "norm": "l2" if self.columns else None,  # counts of a long text would hide columns beside it
        }
