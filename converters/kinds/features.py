"""Features of the rows of files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Features(NamedTuple):
    """Features of the rows, known once all are read.

    Attributes
    ----------
    width : int
    shift : int
        Number to subtract from all indices.
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
