"""Map labels to class codes, and warn about different spellings of a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from streamsvm.base.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.base.label_values import as_number, label_text
from streamsvm.base.text import check_classes, shortened
from streamsvm.errors import InputError, Option, PlanError, Remedy

MISSING = -2
_BYTES_PER_LABEL = 400


def duplicate_warnings(labels: Iterable[str]) -> list[str]:
    """Return a list with a warning about two classes whose labels are the same number, or an empty list."""
    seen: dict[Decimal, str] = {}
    for label in labels:
        if (value := as_number(label)) is not None:
            twin = seen.setdefault(Decimal(label if value else 0), label)  # large integers stay exact
            if twin is not label:
                pair = f"'{shortened(twin)}' and '{shortened(label)}'"
                return [f"labels {pair} are the same number but different classes; write them the same way"]
    return []


class LabelCodes:
    """Mapping from labels to class codes, which are assigned in order of first appearance.

    `unseen` is the number of rows with an unknown label. `has_strings` is True if any label was a string, as
    in CSV.

    Parameters
    ----------
    classes : sequence of str, optional
        Known labels, with codes 0, 1, ... By default, each new label becomes a class.
    unseen_label : {"error", "keep"}
        Whether a label outside `classes` is an error or gets code -1.
    memory : int
        Memory budget in bytes; labels may take half of it.
    missing : set of str
        Strings that stand for a missing label, unless they are in `classes`.
    name : callable
        Function that maps a label string to the name of its class. Several strings may map to the same
        name.
    """

    def __init__(
        self,
        classes: Sequence[str] | None,
        unseen_label: str,
        memory: int,
        missing: Set[str] = frozenset(),
        name: Callable[[str], str] = str,
    ) -> None:
        self._classes = list(classes or ())
        self._codes = {label: code for code, label in enumerate(self._classes)}
        self._code_of_class = {name(label): code for label, code in self._codes.items()}
        self._name = name
        self._missing = missing - self._codes.keys()
        self._learns = classes is None
        self._unseen_label, self._memory = unseen_label, memory
        self._nbytes = 0
        self.unseen = 0
        self.has_strings = False

    def __len__(self) -> int:
        return len(self._classes)

    def names(self) -> list[str]:
        return list(self._classes)

    def notes(self) -> list[str]:
        """Return a list with a remark about two label strings that form one class, or an empty list."""
        first: dict[int, str] = {}
        for text, code in self._codes.items():
            if (other := first.setdefault(code, text)) is not text:
                pair = f"'{shortened(other)}' and '{shortened(text)}'"
                return [f"labels {pair} are the same number and form one class, {self._classes[code]}"]
        return []

    def encode(self, values: Sequence[Any], at: np.ndarray, where: Callable[[int], str]) -> np.ndarray:
        """Return the codes of rows as int32: -1 for an unknown label, `MISSING` for a missing label.

        `values` are distinct labels. `at`, of shape (n_rows,), contains the position of each row's label in
        `values`, or a negative number if the label is missing. `where` returns the place of a row for
        messages.

        Raises `InputError` if a label is unknown and `unseen_label` is "error", or if a value cannot be a
        label. Raises `PlanError` if the labels exceed the memory budget.
        """
        n_rows = len(at)
        first = np.full(len(values) + 1, n_rows)  # first row with each value, and with a missing label
        first[np.maximum(at, -1)[::-1]] = np.arange(n_rows)[::-1]
        table = np.full(len(values) + 1, MISSING, LABEL_DTYPE)
        for number in np.argsort(first[:-1], kind="stable")[: np.count_nonzero(first[:-1] < n_rows)].tolist():
            value = values[number]
            is_text = isinstance(value, str)
            self.has_strings |= is_text
            code = self._codes.get(value) if is_text else None
            table[number] = self._find(value, partial(where, int(first[number]))) if code is None else code
        codes = table[np.maximum(at, -1)]
        self.unseen += int(np.count_nonzero(codes == UNSEEN_LABEL))
        return codes

    def _find(self, value: Any, place: Callable[[], str]) -> int:
        try:
            text = label_text(value)
        except ValueError as error:  # includes UnicodeDecodeError
            raise InputError(f"{place()}: the value cannot be a label: {error}") from None
        if text is None or text in self._missing:
            return MISSING
        if text in self._codes:
            return self._codes[text]
        name = self._name(text)
        code = self._code_of_class.get(name, UNSEEN_LABEL)
        if code == UNSEEN_LABEL and self._learns:
            check_classes([name], place(), InputError)
            code = self._code_of_class[name] = len(self)
            self._classes.append(name)
        elif code == UNSEEN_LABEL and self._unseen_label == "keep":
            return code
        elif code == UNSEEN_LABEL:
            raise InputError(
                f"{place()}: label '{shortened(text)}' is not among the {len(self)} known classes",
                remedy=Remedy(
                    "correct it, or keep rows with unknown labels with {}", Option("unseen_label", "keep")
                ),
            )
        self._codes[text] = code
        self._nbytes += _BYTES_PER_LABEL + len(text)
        if 2 * self._nbytes > self._memory:
            raise PlanError(
                f"{place()}: there are already {len(self):,} different labels, too many for the memory limit",
                remedy=Remedy(
                    "check that the label column contains classes and, if it does, raise {}", Option("memory")
                ),
            )
        return code
