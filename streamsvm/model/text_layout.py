"""Layout of LIBSVM text for online training: its classes, width and index base, or a hash."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamsvm.errors import InputError, Option, Remedy, SettingsError
from streamsvm.model.schema import read_schema


def text_layout(
    like: str | Path | None = None,
    *,
    classes: Sequence[str] | None = None,
    index_base: int | None = None,
    hash_bits: int | None = None,
    seed: int | None = None,
    labels_as: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Combine the caller's arguments with the requirements of a store, run or model.

    Parameters
    ----------
    like : path, optional
        Store, run or model from which to take the classes, and the hash or the width and index base. With
        `hash_bits`, only the classes are taken from one that does not hash.
    classes : sequence of str, optional
        All classes, if not those of `like`.
    index_base : {0, 1}, optional
        By default that of `like`, or 0, which fits any text.
    hash_bits, seed : int, optional
        The hash, if features are to be hashed.
    labels_as : {"numbers", "text"}, optional
        By default as those of `like`, or numbers.

    Returns
    -------
    reading : dict
        Parameters of `TextSource`: ``classes``, ``n_features`` (None if they appear while reading, or are
        hashed), ``index_base`` and ``labels_as``.
    hashing : dict
        Settings of `streamsvm.online`: ``hash_bits``, None without a hash, and its ``seed``.

    Raises
    ------
    SettingsError
        If the arguments contradict one another.
    InputError
        If they contradict `like`, or `like` does not record an index base and none is given.
    """
    if like is not None and classes is not None:
        raise SettingsError("like and classes both define the classes; give one of them", setting="like")
    n_features, base = None, index_base or 0
    if like is not None:
        schema = read_schema(like)
        classes, labels_as = schema.classes, labels_as or schema.labels_as
        hashing = next((each.record() for each in schema.transforms if each.name == "hash"), None)
        if hashing is not None:
            theirs = {"hash_bits": hashing["bits"], "seed": hashing["seed"]}
            for name, given in (("hash_bits", hash_bits), ("seed", seed)):
                if given not in (None, theirs[name]):
                    remedy = Remedy("give {}, or leave it out", Option(name, theirs[name]))
                    raise InputError(f"{like} has another feature hash", remedy=remedy)
            hash_bits, seed = theirs.values()
        elif hash_bits is None:
            n_features, base = schema.n_features, schema.resolve_index_base(index_base)
    if hash_bits is None and seed is not None:
        raise SettingsError(
            "seed is for the feature hash", setting="seed", remedy=Remedy("give {} too", Option("hash_bits"))
        )
    if hash_bits is not None and index_base == 1:
        raise SettingsError(
            "index_base 1 has no effect on hashed features, which keep the numbers in the text; leave it out",
            setting="index_base",
        )
    base = 0 if hash_bits is not None else base
    reading = {"classes": classes, "n_features": n_features, "index_base": base}
    reading["labels_as"] = labels_as or "numbers"
    return reading, {"hash_bits": hash_bits, "seed": seed or 0}
