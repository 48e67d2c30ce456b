"""Settings of `fit` and `online`: name, type, default, help and valid values of each, in one place.

The command line generates its options from them; a test compares the signatures of `streamsvm.fit` and
`streamsvm.online` with them.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import os
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from streamsvm.base.text import parse_ascending
from streamsvm.errors import SettingsError
from streamsvm.losses import LOSSES, SOLVER_PARAMETERS, get_loss
from streamsvm.losses.base import Loss
from streamsvm.settings.field import CheckedSettings, setting
from streamsvm.settings.rules import check_combinations

AUTO = "auto"
BALANCED = "balanced"  # of class_weight
NONE = "none"  # of sample_weight and transform
CLASSES, ROWS = "classes", "rows"  # of split
MARGINS, COSTS, BOTH = "margins", "costs", "both"  # of costs_as
# Parameters of losses and their solvers.
LOSS_SETTINGS = ("margin", "solver", "smooth", "top", "temperature", "solver_tol")
# Settings that `streamsvm.tune` decides, or gives a meaning of its own.
TUNED_SETTINGS = (
    "C", "C_path", "first_C", "tol", "passes", "hold_out", "gap", "keep_duals", "average", "calibrate",
)  # fmt: skip
MAX_HASH_BITS = 31  # of a hash: a column, and a position in a row, then fit one number to sort by


# Defaults of settings that few losses and solvers have.
_LOSS_DEFAULTS = {"smooth": 0.5, "top": 5, "temperature": 1.0, "solver_tol": 1e-3}


class _LossSettings(CheckedSettings):
    """Base of settings that include the parameters of a loss."""

    loss: str

    @property
    def trained_loss(self) -> Loss:
        """Loss in the form that is trained."""
        return get_loss(self.loss)

    @property
    def of_loss(self) -> dict[str, Any]:
        """Parameters of the loss, without those that do not apply to it."""
        values = {name: getattr(self, name) for name in LOSS_SETTINGS}
        return {name: value for name, value in values.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Settings(_LossSettings):
    """Settings of `streamsvm.fit`, documented there; None is replaced by the default it stands for.

    Numbers may be of any library; they are kept as int and float.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    passes: int = setting(int, 3, "Maximum number of passes over the data.", least=1)
    C: float = setting(
        float,
        AUTO,  # a number once data is at hand
        "Weight of the loss against ½‖w‖²: a number, or auto, one over the mean squared norm of the rows.",
        words=(AUTO,),
        positive=True,
    )
    first_C: float | str = setting(
        float,
        AUTO,
        "C of the first pass: it is doubled in each pass until it is C, and the duals grow with it, which is "
        "often faster to a tolerance if C is large. auto: with a tolerance, what auto would be for C, but "
        "enough to reach C by half of the passes; otherwise C.",
        words=(AUTO,),
        positive=True,
    )
    C_path: str | None = setting(
        str,
        None,
        "Factors of C, ascending, such as 0.25,0.5,1,2: each has its share of the passes, one after the "
        "other, and begins with the weights and duals of the one before.",
    )
    loss: str = setting(
        str,
        "ww",
        "Formulation of the multi-class SVM.",
        choices=lambda: tuple(LOSSES),
        titles=lambda: [loss.title for loss in LOSSES.values()],
    )
    margin: float = setting(float, None, "Margin scale M of Weston-Watkins: 1 (default) or 0.5.")
    solver: str = setting(
        str,
        None,
        "Block solver of the loss: newton by default (ovr, ovr2: clip; chain: cached), sorted as published, "
        "or another.",
        choices=lambda: tuple(dict.fromkeys(each for loss in LOSSES.values() for each in loss.solvers)),
    )
    smooth: float | None = setting(
        float,
        None,
        "ε of wws, the smoothed hinge: slacks below it cost quadratically; 0.5 by default.",
        positive=True,
    )
    top: int | None = setting(
        int,
        None,
        "m of top-m: how many of the largest hinges are averaged, at most all; 5 by default.",
        least=1,
    )
    temperature: float | None = setting(
        float, None, "τ of the block solvers bcpl and oeg; 1 by default.", positive=True
    )
    solver_tol: float | None = setting(
        float,
        None,
        "Tolerance of the block solvers bisection (relative), smo and shark (slacks); 0.001 by default.",
        positive=True,
    )
    dtype: str = setting(
        str,
        "float32",
        "Precision of weights, duals and scores; sums and objectives are always float64.",
        choices=lambda: ("float32", "float64"),
    )
    seed: int = setting(int, 0, "Seed of the order of blocks and rows.")
    memory: int = setting(
        int, 2**31, "Memory budget in bytes, or as text such as 500M or 2G.", least=1, size=True
    )
    tol: float | None = setting(
        float, None, "Stop when the exact relative gap (primal - dual) / primal is at most this."
    )
    inner_passes: int | str = setting(
        int,
        AUTO,
        "How often to revisit the rows of a block while they are in memory: a number, or auto, chosen by a "
        "cost model.",
        words=(AUTO,),
    )
    average: bool = setting(
        bool,
        True,
        "Make the model the average of the iterates in the second half of the last pass, instead of the "
        "last iterate.",
    )
    gap: str = setting(
        str,
        None,
        "When to measure the exact gap, which reads the data once more: after each pass (default with a "
        "tolerance), at the end (default without), or never (none).",
        choices=lambda: ("pass", "end", "none"),
    )
    valid: str | None = setting(
        os.PathLike, None, "Store to measure the accuracy on after each pass.", address=True
    )
    hold_out: str | None = setting(
        str,
        None,
        "Measure the accuracy on a part of the rows that is not trained on, such as 1/10: the first of 10 "
        "parts, by a hash of the rows' numbers in the data as given.",
    )
    calibrate: str | None = setting(
        os.PathLike,
        None,
        "Hold-out store to fit the temperature of the model's probabilities to.",
        address=True,
    )
    class_weight: str | Mapping[str, float] | None = setting(
        os.PathLike,
        None,
        "Weights of the classes' rows: balanced, by which all classes weigh the same in all, or a file of "
        "lines with a class and its weight (others: 1).",
        words=(BALANCED,),
        mapping=True,
    )
    sample_weight: str | None = setting(
        str,
        None,
        "Numeric column of obs with the weights of the rows. A store that was converted with weights has "
        "them in the column weight, and uses them unless this is none.",
    )
    costs: str | None = setting(
        os.PathLike,
        None,
        "Table of what it costs to predict one class (column) for another (row): CSV or .npy.",
        may_be_given=True,
    )
    costs_as: str | None = setting(
        str,
        None,
        "What costs are: margins by which the own class must win (default), factors of the loss, or both.",
        choices=lambda: (MARGINS, COSTS, BOTH),
    )
    tree: str | None = setting(
        os.PathLike,
        None,
        "Tree of the classes, a child and its parent a line: the path between two classes is the margin.",
        may_be_given=True,
    )
    transform: str | None = setting(
        str,
        None,
        "What is done with each row first, in this order, in training and by the model: normalize[=sum], "
        "log1p, binarize, idf, df=power, scale=std|maxabs, clip=v, select=FILE|top:N, hash=bits, l2, "
        "bias[=value]; such as normalize=1e4,log1p,scale=std; or none. By default a table with columns of "
        "numbers has scale=std,bias.",
        listed=True,
    )
    label: str | None = setting(
        str, None, "Column of obs with the labels, for AnnData that was not written by convert."
    )
    layer: str | None = setting(str, None, "Layer of such AnnData to train on instead of X.")
    raw: bool = setting(bool, False, "Train on raw.X of such AnnData, with its features.")
    join: str = setting(
        str,
        "inner",
        "Features of several files: those that all have (inner), or all that any has (outer).",
        choices=lambda: ("inner", "outer"),
    )
    keep_duals: bool = setting(
        bool, None, "Keep the duals so that passes can be added later; the default unless passes is 1."
    )
    block_rows: int | None = setting(
        int, None, "Maximum number of rows in a block; by default memory decides.", least=1
    )
    slice_rows: int | None = setting(
        int,
        None,
        "Data that is not shuffled is read in slices of so many rows, each block from anywhere in it, or in "
        "its own order (0); by default chosen by chunks and memory.",
        least=0,
    )
    split: str = setting(
        str,
        AUTO,
        "How training is split, if it has several splits: by classes, whose groups are solved in pairs; by "
        "rows, whose steps are added up; or auto: by classes if each worker then has less work than one core "
        "would have.",
        choices=lambda: (AUTO, CLASSES, ROWS),
    )
    splits: int = setting(
        int,
        1,
        "Parts of each block that are trained on at the same time. The model depends on them, but not on how "
        "many workers there are.",
        least=1,
        most=512,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        loss = get_loss(self.loss)
        defaults = {
            "margin": loss.margins[0],
            "solver": loss.solvers[0],
            "keep_duals": self.passes > 1,
            "gap": "end" if self.tol is None else "pass",
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                self._set(name, value)
        if not loss.has_inner_passes:
            if self.inner_passes not in (0, AUTO):
                self.refuse(
                    "inner_passes",
                    f"0 or auto with the loss {self.loss}, "
                    + ("which has none" if loss.sequences else "whose rows have duals of all classes"),
                )
            self._set("inner_passes", 0)
        for name, values in (("margin", loss.margins), ("solver", loss.solvers)):
            if getattr(self, name) not in values:
                self.refuse(name, f"{' or '.join(map(str, values))} for the loss {self.loss}")
        takes = (*loss.parameters, *SOLVER_PARAMETERS.get(self.solver, ()))
        for name, default in _LOSS_DEFAULTS.items():
            if name not in takes and getattr(self, name) is not None:
                self.refuse(name, f"left out with the loss {self.loss} and the solver {self.solver}")
            if name in takes and getattr(self, name) is None:
                self._set(name, default)
        if self.costs is not None and self.costs_as is None:
            self._set("costs_as", MARGINS)
        check_combinations(self)

    @property
    def trained_loss(self) -> Loss:
        """Loss that is trained: some losses have another form for split classes."""
        loss = get_loss(self.loss)
        return loss.by_classes if self.splits > 1 and self.split == CLASSES else loss

    @property
    def can_split_classes(self) -> bool:
        """True if the settings other than the loss allow splitting the classes."""
        loss = get_loss(self.loss)
        plain = self.costs is None and self.tree is None
        plain &= self.class_weight is None or not loss.own_dual  # else they weigh each class of a row
        return plain and self.solver == loss.solvers[0]

    def share_of_C(self, number: int) -> float:
        """Return the C of pass `number` (from 1 on) divided by the setting C."""
        if self.C_path is not None:
            shares = parse_ascending(self.C_path)
            return shares[min(max(number - 1, 0) * len(shares) // self.passes, len(shares) - 1)]
        if isinstance(self.first_C, str):  # auto, before there is data
            return 1.0
        return min(1.0, self.first_C / self.C * 2.0 ** min(number - 1, 1000))

    def is_measured(self, number: int) -> bool:
        """Return True if held-out rows are scored after pass `number`; of a path, the last pass of each C."""
        ends = self.share_of_C(number) != self.share_of_C(number + 1)
        return self.C_path is None or number == self.passes or ends


def _as_in_fit(name: str) -> Any:
    field = Settings.__dataclass_fields__[name]
    return dataclasses.field(default=field.default, metadata=field.metadata)


@dataclasses.dataclass(frozen=True)
class OnlineSettings(_LossSettings):
    """Settings of `streamsvm.online`, documented there; None is replaced by the default it stands for.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    C: float = setting(
        float,
        AUTO,  # a number once data is at hand
        "Weight of the loss against ½‖w‖²: a number, or auto, one over the mean squared norm of the first "
        "1,000 rows.",
        words=(AUTO,),
        positive=True,
    )
    loss: str = _as_in_fit("loss")
    margin: float = _as_in_fit("margin")
    solver: str = _as_in_fit("solver")
    smooth: float | None = _as_in_fit("smooth")
    top: int | None = _as_in_fit("top")
    temperature: float | None = _as_in_fit("temperature")
    solver_tol: float | None = _as_in_fit("solver_tol")
    dtype: str = _as_in_fit("dtype")
    hash_bits: int | None = setting(
        int, None, "Hash the features to 2**hash_bits columns.", least=1, most=MAX_HASH_BITS
    )
    seed: int = setting(int, 0, "Seed of the feature hash.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if get_loss(self.loss).extra_columns:
            raise SettingsError(
                f"the loss {self.loss} binds all classes together, and a stream brings them one by one; "
                "train with fit, or with another loss",
                setting="loss",
            )
        if get_loss(self.loss).sequences:
            raise SettingsError(
                f"the loss {self.loss} needs whole sequences, not a stream of rows; train with fit",
                setting="loss",
            )
        of_fit = Settings(passes=1, loss=self.loss, **self.of_loss)
        for name in LOSS_SETTINGS:
            self._set(name, getattr(of_fit, name))


class Interval:
    """Interval between commits, in seconds or in blocks.

    Parameters
    ----------
    every : str or float
        A time ("0.5s", "60s", "5m"), a number of seconds, or a number of blocks as text ("8 blocks", or "8").

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
        """Return True if it is time to commit, `blocks` blocks after the last call."""
        self._count += blocks
        if self.blocks:
            return self._count >= self.blocks
        return time.monotonic() - self._begin >= (self.seconds or 0)
