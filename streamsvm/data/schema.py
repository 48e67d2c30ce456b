"""What new data must be like to fit a store, a run or a model: its classes, width and index base."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamsvm import format
from streamsvm.errors import InputError


@dataclasses.dataclass(frozen=True)
class Like:
    """What a store, run or model says of its data.

    Attributes
    ----------
    path : Path
    classes : sequence of str
        Label texts by class code.
    n_features : int
    index_base : int or None
        Of the text that the data comes from, if it does.
    hash : dict or None
        ``bits`` and ``seed`` of a model that hashes its features: to it data may have any.
    named : bool
        Whether the features have names, which LIBSVM text cannot give.
    """

    path: Path
    classes: Sequence[str]
    n_features: int
    index_base: int | None
    hash: dict[str, Any] | None = None
    named: bool = False

    def base(self, asked: int | None) -> int:
        """The index base of text that shall have these features.

        `InputError` if `asked` contradicts it, neither says one, or features have names.
        """
        if self.named:
            raise InputError(
                f"the features of {self.path} have names, and those of LIBSVM text have numbers; convert "
                "without --like, or predict on AnnData that names its features"
            )
        base = asked if self.index_base is None else self.index_base
        if base is None:
            raise InputError(f"{self.path} does not record an index base; give --index-base 0 or 1")
        if asked not in (None, base):
            raise InputError(f"--index-base {asked} contradicts {self.path}, whose indices start at {base}")
        return base


def read_like(path: str | Path) -> Like:
    """Open the store, run or model at `path` for what it says of its data."""
    path = Path(path)
    if (path / format.RUN_JSON).exists() or (path / format.MODEL_JSON).exists():
        from streamsvm.model import load_model

        model = load_model(path)
        record, named = model.record, model.feature_names_in_ is not None
        return Like(
            path, record["classes"], record["n_features"], record["index_base"], record.get("hash"), named
        )
    from streamsvm.store import open_store

    with open_store(path) as store:
        return Like(path, store.classes, store.n_features, store.index_base)
