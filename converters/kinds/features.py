"""What the features of files are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Features(NamedTuple):
    """The features of the rows, known once all are read.

    Attributes
    ----------
    width : int
    shift : int
        Is to be subtracted from all indices.
    index_base : int or None
        The number of the first feature in LIBSVM text; None if features have no numbers there.
    names : sequence of str or None
    encoding : dict or None
        How columns of a table became features (docs/formats.md).
    """

    width: int
    shift: int = 0
    index_base: int | None = None
    names: Sequence[str] | None = None
    encoding: dict[str, Any] | None = None
