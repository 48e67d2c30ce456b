"""Encodings of table columns as features, as stores and models record them (see docs/formats.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from streamsvm.base.decode import Check, SchemaError, between, decode, encode
from streamsvm.data.names import encoded_names
from streamsvm.errors import InputError

DATE_UNITS: tuple[Literal["days"], Literal["years"]] = ("days", "years")  # numbers that encode a date
_NOT_EMPTY = Check(lambda value: len(value) > 0, "not empty")
_Length = Annotated[int, between(1, 100)]


@dataclass(frozen=True)
class EncodedColumn:
    """Encoding of a numeric column, or of a category column with sorted `values`.

    `date` is the number by which a date is encoded: the days since 1970, or the year. `fill` replaces missing
    numbers; if it is None, missing numbers are errors. If `indicator` is True, the last feature of the column
    is 1 in rows whose value is missing.
    """

    name: str
    type: Literal["number", "category"]
    values: list[str] | None = None
    date: Literal["days", "years"] | None = None
    fill: float | None = None
    indicator: bool = False

    def __post_init__(self) -> None:
        if (self.type == "category") != (self.values is not None):
            raise ValueError("a category must have values, and a number must not")
        if self.values is not None and any(
            a >= b for a, b in zip(self.values, self.values[1:], strict=False)
        ):
            raise ValueError("the values of a category must be distinct and in order")
        if self.values is not None and (self.fill is not None or self.date is not None):
            raise ValueError("a category must have neither a fill nor a date")

    @property
    def feature_names(self) -> list[str]:
        return encoded_names(encode(self))


@dataclass(frozen=True)
class TextEncoding:
    """Hashed n-grams of text columns: their counts, or signed counts in rows of norm 1 if `norm` is "l2"."""

    columns: Annotated[list[str], _NOT_EMPTY]
    analyzer: Literal["word", "char", "char_wb"]
    ngrams: tuple[_Length, _Length]
    bits: Annotated[int, between(1, 30)]
    norm: Literal["l2"] | None = "l2"

    def __post_init__(self) -> None:
        if self.ngrams[0] > self.ngrams[1]:
            raise ValueError("the minimum length of the n-grams exceeds the maximum")


@dataclass(frozen=True)
class Encoding:
    """Encoded columns in the order of their features, followed by the n-grams of text columns."""

    columns: list[EncodedColumn]
    text: TextEncoding | None = None

    @property
    def column_features(self) -> list[str]:
        return [name for column in self.columns for name in column.feature_names]

    @property
    def n_features(self) -> int:
        return len(self.column_features) + (0 if self.text is None else 2**self.text.bits)

    @property
    def used(self) -> list[str]:
        """Names of the table columns that are read."""
        texts = [] if self.text is None else self.text.columns
        return list(dict.fromkeys([*(column.name for column in self.columns), *texts]))

    @property
    def numbers(self) -> dict[str, bool]:
        """Names of the numeric columns, and whether each encodes a date."""
        return {column.name: column.date is not None for column in self.columns if column.values is None}

    @property
    def record(self) -> dict[str, Any]:
        """Encoding as JSON, without default values."""
        record = encode(self)
        for column in record["columns"]:
            for name in ("values", "date", "fill", "indicator"):
                if column[name] is None or column[name] is False:
                    del column[name]
        if self.text is None:
            del record["text"]
        elif self.text.norm is not None:
            del record["text"]["norm"]
        return record


def read_encoding(record: Mapping[str, Any], where: object) -> Encoding:
    """Return the encoding in `record`; raise an `InputError` about its file `where` if it is invalid."""
    try:
        encoding: Encoding = decode(Encoding, dict(record), "encoding")
    except SchemaError as error:
        raise InputError(f"{where}: the encoding of the columns is not valid: {error}") from None
    if not encoding.used:
        raise InputError(f"{where}: the encoding of the columns is not valid: it has no column")
    return encoding
