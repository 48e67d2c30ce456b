"""What a fit is asked to do: every choice that its result depends on, checked before anything runs."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import time
from typing import Any, ClassVar

from streamsvm.errors import SettingsError
from streamsvm.losses import get_loss

_LARGEST = sys.float_info.max
MOST_BITS = 31  # of a hash: so that a column, and a position in a row, fit one number to sort by
_FEW_PASSES = 5  # so many at most, and the average beats the last iterate on unseen rows


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a fit; the default of None is replaced by what it stands for.

    Attributes
    ----------
    passes : int
        Passes over the data at most.
    C : float
        Weight of the loss against ½‖w‖².
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
    memory : int
        Budget in bytes for blocks and scratch, beside the interpreter and memory-mapped files.
    tol : float, optional
        Stop as soon as the exact relative gap (primal - dual) / primal of the weights that the model
        would hold is at most this. Rounding can make it negative: then its size counts.
    inner_passes : int or "auto"
        How often to revisit the rows of a block with the classes of their duals alone, before going
        on to the next: buys convergence without reading. By default as often as pays.
    average : bool, optional
        Average the weights over the run, the iterate after t visits weighted by t³, and make the
        average the model; by default if `passes` is at most 5.
    threads : int
        Threads that score rows together, for very many classes. Between one thread and several
        rounding differs, and the cut into blocks where memory decides it.
    gap : {"pass", "end", "none"}
        When to measure the exact gap, which costs one more reading of the data.
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
    C: float = 1.0
    loss: str = "ww"
    margin: float = None  # type: ignore[assignment]  # replaced in __post_init__
    solver: str = None  # type: ignore[assignment]
    dtype: str = "float32"
    seed: int = 0
    memory: int = 2**31
    tol: float | None = None
    inner_passes: int | str = "auto"
    average: bool = None  # type: ignore[assignment]
    threads: int = 1
    gap: str = "pass"
    valid: str | os.PathLike | None = None
    label: str | None = None
    keep_duals: bool = None  # type: ignore[assignment]
    block_rows: int | None = None

    def __post_init__(self) -> None:
        loss = get_loss(self.loss)
        self._default("margin", loss.MARGINS[0])
        self._default("solver", loss.SOLVERS[0])
        self._default("keep_duals", self.passes > 1)
        self._default("average", self.passes <= _FEW_PASSES)
        if self.valid is not None:
            object.__setattr__(self, "valid", os.path.abspath(self.valid))
        self._require(self.margin in loss.MARGINS, "margin", f"for {self.loss} one of {loss.MARGINS}")
        self._require(self.solver in loss.SOLVERS, "solver", f"for {self.loss} one of {loss.SOLVERS}")
        self._require(self.dtype in ("float32", "float64"), "dtype", "float32 or float64")
        self._require(self.gap in ("pass", "end", "none"), "gap", "pass, end or none")
        inner = self.inner_passes
        sound = inner == "auto" or _is_whole(inner, 0)
        self._require(sound, "inner_passes", "auto or a number, 0 or more")
        self._require(_is_whole(self.passes, 1), "passes", "at least 1")
        self._require(_is_number(self.C) and 0 < self.C <= _LARGEST, "C", "positive and finite")
        for name in ("C", "margin"):  # compiled code is made for float
            object.__setattr__(self, name, float(getattr(self, name)))
        self._require(_is_whole(self.seed, 0), "seed", "in [0, 2**63)")
        self._require(_is_whole(self.memory, 1), "memory", "positive")
        self._require(self.tol is None or (_is_number(self.tol) and self.tol >= 0), "tol", "0 or more")
        self._require(self.block_rows is None or _is_whole(self.block_rows, 1), "block_rows", "at least 1")
        self._require(_is_whole(self.threads, 1) and self.threads <= 256, "threads", "from 1 to 256")
        self._require(type(self.average) is bool, "average", "on or off")
        self._require(type(self.keep_duals) is bool, "keep_duals", "on or off")
        self._require(self.label is None or isinstance(self.label, str), "label", "the name of a column")
        if self.threads > 1 and not hasattr(loss, "visit_together"):
            raise SettingsError(f"the loss {self.loss} has no kernel for several threads: threads must be 1")
        if self.passes > 1 and not self.keep_duals:
            raise SettingsError("more than one pass needs the duals of the pass before, so they must be kept")
        if self.tol is not None and self.gap != "pass":
            raise SettingsError(f"tol needs the exact gap after each pass: gap must be pass, not {self.gap}")

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)

    def _require(self, good: bool, name: str, wanted: str) -> None:
        if not good:
            raise SettingsError(f"{name.replace('_', ' ')} must be {wanted}, not {getattr(self, name)!r}")


def _is_whole(value: Any, least: int) -> bool:
    """Whether a setting, which may come from a file, is an int that compiled code can take."""
    return type(value) is int and least <= value < 2**63


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclasses.dataclass(frozen=True)
class OnlineSettings:
    """The settings of one pass over a stream; the default of None is replaced by what it stands for.

    Attributes
    ----------
    C, loss, margin, solver, dtype
        As in `Settings`.
    hash_bits : int, optional
        Hash the features to 2**hash_bits columns (see `streamsvm.hashing`).
    seed : int
        Of the hash.

    Raises
    ------
    SettingsError
        If a setting is not valid: says which, and what is.
    """

    C: float = 1.0
    loss: str = "ww"
    margin: float = None  # type: ignore[assignment]  # replaced in __post_init__
    solver: str = None  # type: ignore[assignment]
    dtype: str = "float32"
    hash_bits: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        names = ("C", "loss", "margin", "solver", "dtype", "seed")
        checked = Settings(passes=1, **{name: getattr(self, name) for name in names})
        for name in ("C", "margin", "solver"):
            object.__setattr__(self, name, getattr(checked, name))
        bits = self.hash_bits
        if bits is not None and not (type(bits) is int and 1 <= bits <= MOST_BITS):
            raise SettingsError(f"hash bits must be from 1 to {MOST_BITS}, not {bits!r}")


class Interval:
    """When to commit: after a time ("0.5s", "60s", "5m"; a float is seconds), or so many blocks ("8")."""

    _UNITS: ClassVar = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

    def __init__(self, text: str | float) -> None:
        if isinstance(text, float):
            text = f"{text:f}s"
        time_match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", str(text).strip())
        self.seconds = float(time_match[1]) * self._UNITS[time_match[2]] if time_match else None
        self.blocks = int(text) if time_match is None and str(text).strip().isdecimal() else None
        if not (self.seconds or self.blocks):
            raise SettingsError(
                f"cannot checkpoint every {text!r}; give a time (0.5s, 60s, 5m) or a number of blocks (8)"
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
