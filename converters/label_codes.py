"""Labels of tables, arrays and AnnData as texts, and their codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import numpy as np

from streamsvm.base.format import LABEL_DTYPE, UNSEEN_LABEL
from streamsvm.base.label_texts import label_text
from streamsvm.base.text import check_classes, printable
from streamsvm.errors import InputError, Option, PlanError, Remedy

MISSING = -2  # the code of a row without a label
_BYTES_PER_LABEL = 400


class LabelCodes:
    """Codes of the texts of labels, which count them in the order of their first appearance.

    Parameters
    ----------
    classes : sequence of str, optional
        The known labels, which have the codes 0, 1, ... Without them every label is added.
    unseen_label : {"error", "keep"}
        With `classes`: whether another label is an error, or gets the code -1.
    memory : int
        Bytes that labels may take.
    missing : set of str
        Texts that are missing labels, unless they are among the `classes`.

    Attributes
    ----------
    unseen : int
        Rows whose label is not among the known ones.
    has_texts : bool
        Whether a label was given as text, which in CSV all are.
    """

    def __init__(
        self, classes: Sequence[str] | None, unseen_label: str, memory: int, missing: Set[str] = frozenset()
    ) -> None:
        self._codes = {label: code for code, label in enumerate(classes or ())}
        self._missing = missing - self._codes.keys()
        self._learns = classes is None
        self._unseen_label, self._memory = unseen_label, memory
        self._nbytes = 0
        self.unseen = 0
        self.has_texts = False

    def texts(self) -> list[str]:
        """Return the labels in the order of their codes."""
        return list(self._codes)

    def encode(self, values: Iterable[Any], at: np.ndarray, where: Callable[[int], str]) -> np.ndarray:
        """Return the codes of rows, int32: -1 for unknown labels and `MISSING` for missing ones.

        Parameters
        ----------
        values : iterable
            Distinct values.
        at : ndarray of int, shape (n_rows,)
            Number of the value of each row; below 0 for a missing one.
        where : callable
            Returns the name of the place of a row, which is counted within this call.

        Raises
        ------
        InputError
            If a label is not known, and that is an error, or a value is no label.
        PlanError
            If there are too many labels.
        """
        table = []
        for number, value in enumerate(values):
            self.has_texts |= isinstance(value, str)
            try:
                text = label_text(value)
            except ValueError as error:  # of UnicodeDecodeError, too
                row = where(int(np.argmax(at == number)))
                raise InputError(f"{row}: this cannot be a label: {error}") from None
            if text is None or text in self._missing:
                table.append(MISSING)
                continue
            code = self._codes.get(text, UNSEEN_LABEL)
            if code < 0 and (at == number).any():
                row = where(int(np.argmax(at == number)))
                code = self._new(text, row)
            table.append(code)
        table.append(MISSING)  # of rows with -1
        codes = np.array(table, LABEL_DTYPE)[np.where(at < 0, len(table) - 1, at)]
        self.unseen += int(np.count_nonzero(codes == UNSEEN_LABEL))
        return codes

    def _new(self, text: str, row: str) -> int:
        """Return the code of a label that has none yet."""
        if not self._learns:
            if self._unseen_label == "error":
                raise InputError(
                    f"{row}: label {printable(text)!r} is not among the {len(self._codes)} known classes",
                    remedy=Remedy(
                        "correct it, or keep such rows as unknown with {}", Option("unseen_label", "keep")
                    ),
                )
            return UNSEEN_LABEL
        check_classes([text], row, InputError)
        self._nbytes += _BYTES_PER_LABEL + len(text)
        if 2 * self._nbytes > self._memory:
            raise PlanError(
                f"{row}: {len(self._codes):,} different labels so far, too many for the memory limit",
                remedy=Remedy(
                    "check that the label column holds classes; if it does, raise {}", Option("memory")
                ),
            )
        return self._codes.setdefault(text, len(self._codes))
