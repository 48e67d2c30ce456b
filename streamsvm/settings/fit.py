"""Settings of `fit`: all facts of each in one place."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import re
import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from streamsvm.base.text import parse_part
from streamsvm.errors import SettingsError
from streamsvm.losses import LOSSES, get_loss
from streamsvm.losses.base import FILLING, Loss
from streamsvm.settings import checks
from streamsvm.settings.field import ESTIMATOR, MATRIX, CheckedSettings, declared, setting
from streamsvm.settings.reading import DataSettings
from streamsvm.settings.rules import check_combinations

AUTO = "auto"
BALANCED = "balanced"  # of class_weight
NONE = "none"  # of sample_weight and transform
CLASSES, ROWS = "classes", "rows"  # of split

_model, _training, _weights, _labels, _features, _computing, _cores, _fine = (
    functools.partial(setting, group=heading)
    for heading in (
        "Model", "Training", "Weights and costs", "Labels", "Features", "Computing", "Several cores",
        "Fine tuning",
    )
)  # fmt: skip
_TITLES = "; ".join(f"{name}: {loss.title.partition(' (')[0]}" for name, loss in LOSSES.items())
_LOSS = checks.one_of(*LOSSES, AUTO)._replace(accepts="str", metavar="NAME")
_SOLVERS = dict.fromkeys(each for loss in LOSSES.values() for each in loss.solvers)
_SOLVER = checks.one_of(*_SOLVERS)._replace(accepts="str", take=str)  # `rules` compares it with the loss


def _class_weights(value: Any) -> Any:
    """Return the weights of a mapping by the names of the classes, which `PATH` would refuse."""
    if not isinstance(value, Mapping):
        return checks.PATH.take(value)
    from streamsvm.base.label_values import class_name  # needs NumPy, which help does without

    return {
        class_name(label): float(weight) if isinstance(weight, numbers.Real) else weight
        for label, weight in value.items()
    }


_PART = checks.TEXT._replace(
    wanted="a part such as 1/10, of 2 to 1,000 parts", take=lambda text: parse_part(text) and text
)
_TRANSFORM = checks.TEXT._replace(
    accepts="str | Sequence[str]", take=lambda value: ",".join([value] if isinstance(value, str) else value)
)
_CLASS_WEIGHT = checks.or_word(
    BALANCED, checks.PATH._replace(take=_class_weights, accepts="str | Path | Mapping[str, float]")
)


@dataclasses.dataclass(frozen=True)
class LossSettings(CheckedSettings):
    """Settings of each training, of `fit` and of `online`."""

    C: Annotated[float, checks.or_word(AUTO, checks.POSITIVE)] = _model(  # a number once data is at hand
        "Weight of the loss against ½‖w‖²: a number, or auto, one over the mean squared distance of the rows "
        "from their mean; online, over the mean squared norm of the first 1,000 rows.",
        "For `fit` on dense rows, auto is 1, 0.1, 0.01 or 0.001 times that, the largest of those that are "
        "about best on held-out rows of a sample.", default=AUTO, scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    loss: Annotated[str, _LOSS] = _model(
        f"Formulation of the multi-class SVM. {_TITLES}; auto, for fit and tune: ww, cs or ovr2, chosen on a "
        "sample of the rows.", default="ww", scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    margin: Annotated[float, checks.NOT_NEGATIVE] = _model(
        "Margin scale M of Weston-Watkins: 1 (default) or 0.5.", scope=ESTIMATOR, searched=True
    )
    solver: Annotated[str, _SOLVER] = _fine(
        "Block solver of the loss: newton by default (ovr, ovr2: clip; chain: cached), sorted as published, "
        "or another.", scope=ESTIMATOR,
    )  # fmt: skip
    smooth: Annotated[float | None, checks.POSITIVE] = _model(
        "ε of wws, the smoothed hinge: slacks below it cost quadratically; 0.5 by default.",
        scope=ESTIMATOR, loss_default=0.5,
    )  # fmt: skip
    top: Annotated[int | None, checks.whole(1)] = _model(
        "m of top-m: how many of the largest hinges are averaged, at most all; 5 by default.",
        scope=ESTIMATOR, loss_default=5,
    )  # fmt: skip
    temperature: Annotated[float | None, checks.POSITIVE] = _fine(
        "τ of the block solvers bcpl and oeg of chain; 1 by default.", scope=ESTIMATOR, loss_default=1.0
    )
    dtype: Annotated[str, checks.one_of("float32", "float64")] = _computing(
        "Precision of weights, duals and scores; sums and objectives are always float64.",
        default="float32", scope=ESTIMATOR,
    )  # fmt: skip

    @property
    def of_loss(self) -> dict[str, Any]:
        """Parameters of the loss, without those that do not apply to it."""
        few = (name for name, each in declared(type(self)).items() if each.loss_default is not None)
        values = {name: getattr(self, name) for name in ("margin", "solver", *few)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def parameters(self) -> dict[str, Any]:
        """Defaults of the parameters that this loss and this solver have, and few others."""
        names = (*get_loss(self.loss).parameters, *["temperature"] * (self.solver in FILLING))
        return {name: declared(type(self))[name].loss_default for name in names}


@dataclasses.dataclass(frozen=True)
class Settings(DataSettings, LossSettings):
    """Settings of `streamsvm.fit`, documented there; None is replaced by the default it stands for.

    Numbers may be of any library; they are kept as int and float.

    Raises
    ------
    SettingsError
        If a setting is not valid; says which, and what is.
    """

    passes: Annotated[int, checks.whole(1)] = _training(
        "Maximum number of passes over the data.", default=3,
        scope=ESTIMATOR, searched=True, changeable="New total number of passes of a fit.",
    )  # fmt: skip
    seed: Annotated[int, checks.whole()] = _computing(
        "Seed of the order of blocks and rows.", default=0, scope=MATRIX
    )
    memory: Annotated[int, checks.SIZE] = _computing(
        "Memory budget in bytes, or as text such as 500M or 2G.", default=2**31, scope=MATRIX
    )
    tol: Annotated[float | None, checks.NOT_NEGATIVE] = _training(
        "Stop when the exact relative gap (primal - dual) / primal is at most this.",
        "A negative gap, which rounding can give, counts by its size. The gap is that of the model after a "
        "pass: of the average, if the pass has one, or else of the last iterate.",
        scope=ESTIMATOR, searched=True,
        changeable="New tolerance of a fit, whose exact gap is then measured after each pass.",
    )  # fmt: skip
    inner_passes: Annotated[int | str, checks.or_word(AUTO, checks.whole())] = _fine(
        "How often to revisit the rows of a block while they are in memory: a number, or auto, chosen by a "
        "cost model.", default=AUTO, scope=ESTIMATOR,
    )  # fmt: skip
    average: bool = _model(
        "Make the model the average of the iterates in the second half of the last pass, instead of the last "
        "iterate.",
        "The t-th iterate has weight t. With `tol` also earlier passes have an average, if it is expected to "
        "meet the tolerance. If `memory` has no room for the average, it is left out with a warning.",
        default=True, scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    gap: Annotated[str, checks.one_of("pass", "end", "none")] = _training(
        "When to measure the exact gap, which reads the data once more: after each pass (default with a "
        "tolerance), at the end (default without), or never (none).", scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    valid: Annotated[str | None, checks.ADDRESS] = _training(
        "Store, text or table to measure the accuracy on after each pass.",
        searched=True, instead="give hold_out, or call streamsvm.evaluate on its model",
        changeable="Where the validation store of a fit is now, or another one.",
    )  # fmt: skip
    from_: Annotated[str | None, checks.PATH] = _training(
        "Model, or run with one, to go on from with new rows: minimise ½‖W - W₀‖² + C times the loss, where "
        "W₀ are its weights. Its transforms are applied, and its classes and features are kept.",
        "Both are matched by name; weights of new ones begin at 0. A small C stays near the model.",
        scope=MATRIX, searched=True,
    )  # fmt: skip
    hold_out: Annotated[str | None, _PART] = _training(
        "Measure the accuracy on a part of each class that is not trained on, such as 1/10: the first of 10 "
        "parts, by a hash of the rows' numbers in the input.",
        "Groups of rows stay whole, whatever their classes. The rows count neither for C auto nor for the "
        "statistics of transforms, nor for balanced weights of classes.", scope=MATRIX, searched=True,
    )  # fmt: skip
    hold_out_by: Annotated[str | None, checks.TEXT._replace(accepts="Any")] = _training(
        "Column of a table or of obs, such as a donor, or for a matrix or LIBSVM text a file with one value "
        "a line: rows with equal values are held out together, by fit, tune and the search for C.",
        "For a matrix in memory also an array of shape (n,). The column is not a feature. A store that was "
        "converted with one uses it. ``docs/tuning.md`` explains it.", scope=MATRIX,
    )  # fmt: skip
    class_weight: Annotated[str | Mapping[str, float] | None, _CLASS_WEIGHT] = _weights(
        "Weights of the classes' rows: balanced, by which all classes weigh the same in all, or a file of "
        "lines with a class and its weight (others: 1).",
        "Balanced is the number of labels / (number of classes × rows of the class). The cost of a row is C "
        "times the weights of its class and of itself; of ``ovr`` and ``ovr2`` the weight of a class is that "
        "of its own machine's positive rows, as in LIBLINEAR.", scope=MATRIX,
    )  # fmt: skip
    sample_weight: Annotated[str | None, checks.TEXT._replace(accepts="Any")] = _weights(
        "Numeric column of obs with the weights of the rows. A store that was converted with weights has "
        "them in the column weight, and uses them unless this is none.",
        "Of a matrix it may be an array of shape (n,). A row of weight 0 is left out. The mean counts in a "
        "group, with the loss ``chain``.", scope=MATRIX,
    )  # fmt: skip
    weights: Annotated[str | None, checks.PATH] = _weights(
        "Weights of the rows of a matrix, text or a table: a file with one a line; of a matrix also .npy.",
        instead="give sample_weight",
    )
    costs: Annotated[str | None, checks.TABLE] = _weights(
        "Table of margins by which each class (row) must win against each other (column): CSV with the names "
        "of the classes in the first line and column, or .npy in their order.",
        "Or a DataFrame, or an array of shape (k, k).", scope=ESTIMATOR,
    )  # fmt: skip
    tree: Annotated[str | None, checks.TABLE] = _weights(
        "Tree of the classes, a child and its parent a line, in place of costs: the margin of two classes is "
        "the length of the path between them.",
        "Or a mapping of child to parent.", scope=ESTIMATOR,
    )  # fmt: skip
    transform: Annotated[str | None, _TRANSFORM] = _model(
        "What is done with each row first, in this order, in training and by the model: normalize[=sum], "
        "log1p, binarize, idf, df=power, center, scale=std|maxabs, clip=v, select=FILE, hash=bits, "
        "l2, bias[=value], fourier=D[:gamma=x]; such as normalize=1e4,log1p,scale=std; or none. By default a "
        "table with columns of numbers has center,scale=std,bias, AnnData with counts "
        "normalize=1e4,log1p,bias, text without other columns log1p,idf,l2,bias, and other data bias. With "
        "auto several are compared on a sample of the rows.",
        "Or a list of such texts. A DataFrame is a table. ``bias`` is a constant feature "
        "with the coefficients `Model.intercept_`. Transforms that need facts of all rows read the data once "
        "more. ``docs/transforms.md`` explains each.", scope=MATRIX, searched=True,
    )  # fmt: skip
    valid_labels: Annotated[str | None, checks.PATH] = _labels(
        "Labels of the matrix that valid names.", instead="call streamsvm.evaluate on its model",
        changeable="Labels of the matrix that valid names, if they are elsewhere now, or others.",
    )  # fmt: skip
    join: Annotated[str, checks.one_of("inner", "outer")] = _features(
        "Features of several files: those that all have (inner), or all that any has (outer).",
        default="inner", instead="concatenate before",
    )  # fmt: skip
    keep_duals: bool = _fine(
        "Keep the duals so that passes can be added later; the default unless passes is 1.",
        scope=MATRIX, searched=True,
    )  # fmt: skip
    block_rows: Annotated[int | None, checks.whole(1)] = _fine(
        "Maximum number of rows in a block; by default memory decides.", scope=MATRIX
    )
    slice_rows: Annotated[int | None, checks.whole()] = _fine(
        "Data that is not shuffled is read in slices of so many rows, each block from anywhere in it, or in "
        "its own order (0); by default chosen by chunks and memory.", scope=MATRIX,
    )  # fmt: skip
    split: Annotated[str, checks.one_of(AUTO, CLASSES, ROWS)] = _cores(
        "How training is split, if it has several splits: by classes, whose groups are solved in pairs; by "
        "rows, whose steps are added up; or auto: by classes if each worker then has less work than one core "
        "would have.",
        "By classes it is the scheme of Alber et al. (2017) with exact blocks; by rows CoCoA+ (Ma et al. "
        "2015).", default=AUTO, scope=ESTIMATOR,
    )  # fmt: skip
    splits: Annotated[int, checks.whole(1, 512)] = _cores(
        "Parts of each block that are trained on at the same time. The model depends on them, but not on how "
        "many workers there are.", default=1, scope=ESTIMATOR,
    )  # fmt: skip
    # Not for users: factors of C in the first passes, ascending. The last one holds for all later passes.
    C_factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("C_factors", tuple(self.C_factors))  # a list in run.json
        loss = get_loss(self.loss)
        defaults = {
            "margin": loss.margins[0],
            "solver": loss.solvers[0],
            "keep_duals": self.passes > 1,
            "gap": "end" if self.tol is None else "pass",
        }
        for name, value in (defaults | self.parameters).items():
            if getattr(self, name) is None:
                self._set(name, value)
        check_combinations(self)
        if not loss.has_inner_passes:
            self._set("inner_passes", 0)

    @property
    def trained_loss(self) -> Loss:
        """Loss that is trained: some losses have another form for split classes."""
        loss = get_loss(self.loss)
        return loss.by_classes if self.splits > 1 and self.split == CLASSES else loss

    @property
    def has_pair_margins(self) -> bool:
        """True if pairs of classes have margins of their own, from a table or a tree."""
        return self.costs is not None or self.tree is not None

    @property
    def can_split_classes(self) -> bool:
        """True if the settings other than the loss allow splitting the classes."""
        loss = get_loss(self.loss)
        plain = self.class_weight is None or not loss.own_dual  # else they weigh each class of a row
        return plain and not self.has_pair_margins and self.solver == loss.solvers[0]

    @property
    def is_search(self) -> bool:
        """True if the passes search for C: held-out rows are scored once for each C, and nobody resumes."""
        return bool(self.C_factors) and self.tol is None

    def share_of_C(self, number: int) -> float:
        """Return the C of pass `number` (from 1 on) divided by the setting C."""
        factors = self.C_factors or (1.0,)
        return factors[min(max(number, 1), len(factors)) - 1]

    def is_measured(self, number: int) -> bool:
        """Return True if held-out rows are scored after pass `number`: of a search, the last of each C."""
        if self.valid is None and self.hold_out is None:
            return False
        ends = self.share_of_C(number) != self.share_of_C(number + 1)
        return not self.is_search or number == self.passes or ends


TO_TUNE = {name: each for name, each in declared(Settings).items() if not each.searched}


class Interval:
    """Interval between commits, in seconds or in blocks.

    Parameters
    ----------
    every : str or float, optional
        A time ("0.5s", "60s", "5m"), a number of seconds, or a number of blocks as text ("8 blocks", or "8").
        By default 20 times the time of the last commit, and at least 10 seconds.

    Raises
    ------
    SettingsError
        If it is none of these, or not positive.
    """

    _UNITS: ClassVar = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

    def __init__(self, every: str | float | None = None) -> None:
        self.seconds: float | None = None if every is not None else 10.0
        self._is_relative = every is None
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

    def restart(self, cost: float = 0.0) -> None:
        """Begin the next interval, after a commit that took `cost` seconds."""
        if self._is_relative:
            self.seconds = max(10.0, 20 * cost)
        self._begin = time.monotonic()
        self._count = 0

    def due(self, blocks: int) -> bool:
        """Return True if it is time to commit, `blocks` blocks after the last call."""
        self._count += blocks
        if self.blocks:
            return self._count >= self.blocks
        return time.monotonic() - self._begin >= (self.seconds or 0)
