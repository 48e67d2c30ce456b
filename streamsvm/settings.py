"""What a fit is asked to do: every choice that its result depends on, checked before anything runs."""

from __future__ import annotations

import dataclasses
import difflib
import math
import numbers
import operator
import os
import re
import sys
import time
from typing import Any, ClassVar, Self

from streamsvm.errors import SettingsError
from streamsvm.losses import get_loss
from streamsvm.text import check_local, parse_size

_LARGEST = sys.float_info.max
MOST_BITS = 31  # of a hash: so that a column, and a position in a row, fit one number to sort by
AUTO = "auto"


class _Named:
    """Refuses settings by a name that is none, with the nearest that is."""

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        known = {field.name.lower(): field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for name in settings:
            if name not in known.values():
                near = difflib.get_close_matches(name.lower(), known, 1)
                hint = f"did you mean {known[near[0]]}?" if near else f"there are {', '.join(known.values())}"
                raise SettingsError(f"there is no setting {name}; {hint}")
        return super().__new__(cls)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True)
class Settings(_Named):
    """The settings of a fit; the default of None is replaced by what it stands for.

    Whole numbers may be of any integer type, other numbers of any real one: they are kept as int and float.

    Attributes
    ----------
    passes : int
        Passes over the data at most.
    C : float or "auto"
        Weight of the loss against ½‖w‖². By default one over the mean of the rows' ‖x‖².
    loss : {"ww", "cs"}
        Weston-Watkins or Crammer-Singer (see `streamsvm.losses`).
    margin : float, optional
        Margin scale M of Weston-Watkins: 1 (default) or 0.5.
    solver : str, optional
        Block solver: "newton" (default), or "sorted", the published one.
    dtype : {"float32", "float64"}
        Of weights, duals and scores; sums and objectives are float64 always.
    seed : int
        Determines the order of blocks and rows.
    memory : int or str
        Budget in bytes, or as text ("500M", "2G"), for blocks and scratch, beside the interpreter and
        memory-mapped files.
    tol : float, optional
        Stop as soon as the exact relative gap (primal - dual) / primal of the last iterate is at most
        this, or that of the average, which is kept in passes that may reach it; the model is one that
        does. Rounding can make a gap negative: then its size counts.
    inner_passes : int or "auto"
        How often to revisit the rows of a block with the classes of their duals alone, before going
        on to the next: buys convergence without reading. By default as often as pays.
    average : bool, optional
        Make the model the average of the iterates in the second half of the last pass, the t-th of
        them weighted by t (with a `tol`, see there). On by default.
    gap : {"pass", "end", "none"}, optional
        When to measure the exact gap, which costs one more reading of the data: after each pass, by
        default if there is a `tol`; after the last one, by default if there is none; or never.
    valid : path, optional
        A store to measure the accuracy on after each pass.
    label : str, optional
        Column of ``obs`` with the labels, for AnnData that `streamsvm convert` did not write.
    keep_duals : bool, optional
        Keep the duals so that passes can be added later; by default unless `passes` is 1.
    block_rows : int, optional
        Upper bound of the rows in a block; by default memory decides.

    Raises
    ------
    SettingsError
        If a setting is not valid: says which, and what is.
    """

    passes: int = 3
    C: float = AUTO  # type: ignore[assignment]  # a number once data is at hand
    loss: str = "ww"
    margin: float = None  # type: ignore[assignment]  # replaced in __post_init__
    solver: str = None  # type: ignore[assignment]
    dtype: str = "float32"
    seed: int = 0
    memory: int = 2**31  # text is replaced by what it stands for
    tol: float | None = None
    inner_passes: int | str = "auto"
    average: bool = None  # type: ignore[assignment]
    gap: str = None  # type: ignore[assignment]
    valid: str | os.PathLike | None = None
    label: str | None = None
    keep_duals: bool = None  # type: ignore[assignment]
    block_rows: int | None = None

    def __post_init__(self) -> None:
        for name in ("passes", "seed", "inner_passes", "block_rows"):
            self._set(name, _plain(getattr(self, name)))
        for name in ("C", "margin", "tol"):
            self._set(name, _plain(getattr(self, name), whole=False))
        if not isinstance(self.memory, int):
            self._set("memory", parse_size(self.memory))
        self._require(_is_whole(self.passes, 1), "passes", "at least 1")
        loss = get_loss(self.loss)
        self._default("margin", loss.margins[0])
        self._default("solver", loss.solvers[0])
        self._default("keep_duals", self.passes > 1)
        self._default("average", True)
        self._default("gap", "end" if self.tol is None else "pass")
        if self.valid is not None:
            check_local(self.valid, SettingsError)
            self._set("valid", os.path.abspath(self.valid))
        self._require(self.margin in loss.margins, "margin", f"for {self.loss} one of {loss.margins}")
        self._require(self.solver in loss.solvers, "solver", f"for {self.loss} one of {loss.solvers}")
        self._require(self.dtype in ("float32", "float64"), "dtype", "float32 or float64")
        self._require(self.gap in ("pass", "end", "none"), "gap", "pass, end or none")
        inner = self.inner_passes
        sound = inner == "auto" or _is_whole(inner, 0)
        self._require(sound, "inner_passes", "auto or a number, 0 or more")
        if self.C != AUTO:
            self._require(_is_number(self.C) and 0 < self.C <= _LARGEST, "C", "auto, or positive and finite")
            self._set("C", float(self.C))  # compiled code is made for float
        self._set("margin", float(self.margin))
        self._require(_is_whole(self.seed, 0), "seed", "in [0, 2**63)")
        self._require(_is_whole(self.memory, 1), "memory", "positive")
        self._require(self.tol is None or (_is_number(self.tol) and self.tol >= 0), "tol", "0 or more")
        self._require(self.block_rows is None or _is_whole(self.block_rows, 1), "block_rows", "at least 1")
        self._require(type(self.average) is bool, "average", "on or off")
        self._require(type(self.keep_duals) is bool, "keep_duals", "on or off")
        self._require(self.label is None or isinstance(self.label, str), "label", "the name of a column")
        if self.passes > 1 and not self.keep_duals:
            raise SettingsError("more than one pass needs the duals of the pass before, so they must be kept")
        if self.tol is not None and self.gap != "pass":
            raise SettingsError(f"tol needs the exact gap after each pass: gap must be pass, not {self.gap}")

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            self._set(name, value)

    def _require(self, good: bool, name: str, wanted: str) -> None:
        if not good:
            raise SettingsError(f"{name.replace('_', ' ')} must be {wanted}, not {getattr(self, name)!r}")


def _plain(value: Any, *, whole: bool = True) -> Any:
    """A number of any library as Python's own; anything else as it is."""
    if isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return float(value) if isinstance(value, numbers.Real) and not whole else value


def _is_whole(value: Any, least: int) -> bool:
    """Whether a setting, which may come from a file, is an int that compiled code can take."""
    return type(value) is int and least <= value < 2**63


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class OnlineSettings(_Named):
    """The settings of one pass over a stream; the default of None is replaced by what it stands for.

    Attributes
    ----------
    C : float or "auto"
        Weight of the loss against ½‖w‖². By default one over the mean of ‖x‖² of the first rows, 1,000
        of them if the stream has so many.
    loss, margin, solver, dtype
        As in `Settings`.
    hash_bits : int, optional
        Hash the features to 2**hash_bits columns (see `streamsvm.transforms.hashing`).
    seed : int
        Of the hash.

    Raises
    ------
    SettingsError
        If a setting is not valid: says which, and what is.
    """

    C: float = AUTO  # type: ignore[assignment]  # a number once data is at hand
    loss: str = "ww"
    margin: float = None  # type: ignore[assignment]  # replaced in __post_init__
    solver: str = None  # type: ignore[assignment]
    dtype: str = "float32"
    hash_bits: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        names = ("C", "loss", "margin", "solver", "dtype", "seed")
        checked = Settings(passes=1, **{name: getattr(self, name) for name in names})
        for name in names:
            self._set(name, getattr(checked, name))
        self._set("hash_bits", _plain(self.hash_bits))
        bits = self.hash_bits
        if bits is not None and not (type(bits) is int and 1 <= bits <= MOST_BITS):
            raise SettingsError(f"hash bits must be from 1 to {MOST_BITS}, not {bits!r}")


class Interval:
    """When to commit: after a time ("0.5s", "60s", "5m"), seconds (a number), or blocks ("8 blocks", or "8").

    Raises
    ------
    SettingsError
        If it is none of these, or not positive.
    """

    _UNITS: ClassVar = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

    def __init__(self, every: str | float) -> None:
        self.seconds: float | None = None
        self.blocks: int | None = None
        text = str(every).strip()
        if isinstance(every, numbers.Real) and not isinstance(every, bool):
            self.seconds = float(every)
        elif found := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", text):
            self.seconds = float(found[1]) * self._UNITS[found[2]]
        elif found := re.fullmatch(r"([0-9]{1,18})(?: blocks?)?", text):
            self.blocks = int(found[1])
        if not (self.blocks or (self.seconds is not None and 0 < self.seconds < math.inf)):
            raise SettingsError(
                f"cannot checkpoint every {every!r}; give a time (0.5s, 60s, 5m) or a number of blocks (8)"
            )
        self.restart()

    def restart(self) -> None:
        self._begin = time.monotonic()
        self._count = 0

    def due(self, blocks: int) -> bool:
        """Whether it is time to commit, so many blocks after it was last asked."""
        self._count += blocks
        if self.blocks:
            return self._count >= self.blocks
        return time.monotonic() - self._begin >= (self.seconds or 0)
