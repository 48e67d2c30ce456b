"""Settings of `fit`."""

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
BALANCED = "balanced"
NONE = "none"
CLASSES, ROWS = "classes", "rows"

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
_SOLVER = checks.one_of(*_SOLVERS)._replace(accepts="str", take=str)  # see `rules` for the loss


def _class_weights(value: Any) -> Any:
    """Convert the keys of a mapping to class names, or check a path."""
    if not isinstance(value, Mapping):
        return checks.PATH.take(value)
    from streamsvm.base.label_values import class_name  # needs NumPy, which help does not load

    return {
        class_name(label): float(weight) if isinstance(weight, numbers.Real) else weight
        for label, weight in value.items()
    }


_PART = checks.TEXT._replace(
    wanted="a part such as 1/10, out of 2 to 1,000 parts", take=lambda text: parse_part(text) and text
)
_TRANSFORM = checks.TEXT._replace(
    accepts="str | Sequence[str]", take=lambda value: ",".join([value] if isinstance(value, str) else value)
)
_CLASS_WEIGHT = checks.or_word(
    BALANCED, checks.PATH._replace(take=_class_weights, accepts="str | Path | Mapping[str, float]")
)


@dataclasses.dataclass(frozen=True)
class LossSettings(CheckedSettings):
    """Settings that `fit` and `online` share."""

    C: Annotated[float, checks.or_word(AUTO, checks.POSITIVE)] = _model(  # a number once data is read
        "Weight C of the loss relative to ½‖w‖²: a number, or auto for one over the mean squared distance of "
        "the rows from their mean (in online, one over the mean squared norm of the first 1,000 rows).",
        "For `fit` on dense rows, auto multiplies this by 1, 0.1, 0.01 or 0.001: the largest factor whose "
        "accuracy on held-out rows is close to the best.", default=AUTO, scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    loss: Annotated[str, _LOSS] = _model(
        f"Formulation of the multi-class SVM. {_TITLES}; auto, in fit and tune: ww, cs or ovr2, chosen on a "
        "sample of the rows.", default="ww", scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    margin: Annotated[float, checks.NOT_NEGATIVE] = _model(
        "Margin scale M of Weston-Watkins: 1 (default) or 0.5.", scope=ESTIMATOR, searched=True
    )
    solver: Annotated[str, _SOLVER] = _fine(
        "Block solver of the loss: newton (the default; clip for ovr and ovr2, cached for chain), sorted (as "
        "published), or another one that the loss offers.", scope=ESTIMATOR,
    )  # fmt: skip
    smooth: Annotated[float | None, checks.POSITIVE] = _model(
        "ε of wws, the smoothed hinge: slacks below ε have a quadratic cost; 0.5 by default.",
        scope=ESTIMATOR, loss_default=0.5,
    )  # fmt: skip
    top: Annotated[int | None, checks.whole(1)] = _model(
        "m of top-m: number of largest hinges to average, at most one per class; 5 by default.",
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
        """Parameters of the loss that are set, by name."""
        few = (name for name, each in declared(type(self)).items() if each.loss_default is not None)
        values = {name: getattr(self, name) for name in ("margin", "solver", *few)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def parameters(self) -> dict[str, Any]:
        """Defaults of the parameters that are specific to this loss and solver."""
        names = (*get_loss(self.loss).parameters, *["temperature"] * (self.solver in FILLING))
        return {name: declared(type(self))[name].loss_default for name in names}


@dataclasses.dataclass(frozen=True)
class Settings(DataSettings, LossSettings):
    """Settings of `streamsvm.fit`, documented there.

    None is replaced by the default, and numbers are converted to int or float.

    Raises
    ------
    SettingsError
        If a setting is invalid.
    """

    passes: Annotated[int, checks.whole(1)] = _training(
        "Maximum number of passes over the data.", default=3,
        scope=ESTIMATOR, searched=True, changeable="New total number of passes of a fit.",
    )  # fmt: skip
    seed: Annotated[int, checks.whole()] = _computing(
        "Seed of the order of blocks and rows, and of fourier.", default=0, scope=MATRIX
    )
    memory: Annotated[int, checks.SIZE] = _computing(
        "Memory budget in bytes, or as text such as 500M or 2G.", default=2**31, scope=MATRIX
    )
    tol: Annotated[float | None, checks.NOT_NEGATIVE] = _training(
        "Stop when the exact relative gap (primal - dual) / primal is at most this.",
        "The absolute value of the gap is compared, because rounding can make it negative. The gap is "
        "measured for the model after a pass: the average if the pass has one, or else the last iterate.",
        scope=ESTIMATOR, searched=True,
        changeable="New tolerance of a fit; the exact gap is then measured after each pass.",
    )  # fmt: skip
    inner_passes: Annotated[int | str, checks.or_word(AUTO, checks.whole())] = _fine(
        "Number of times to revisit the rows of a block while they are in memory, or auto to let a cost "
        "model choose it.", default=AUTO, scope=ESTIMATOR,
    )  # fmt: skip
    average: bool = _model(
        "Use the average of the iterates in the second half of the last pass as the model, instead of the "
        "last iterate.",
        "The t-th iterate has weight t. With `tol`, an earlier pass is also averaged if it is expected "
        "to meet the tolerance. If `memory` has no room for the average, a warning says so, and the model "
        "is the last iterate.", default=True, scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    gap: Annotated[str, checks.one_of("pass", "end", "none")] = _training(
        "When to measure the exact gap, which reads the data once more: after each pass (default with a "
        "tolerance), at the end (default otherwise), or never (none).", scope=ESTIMATOR, searched=True,
    )  # fmt: skip
    valid: Annotated[str | None, checks.ADDRESS] = _training(
        "Store, text or table to measure the accuracy on after each pass.", searched=True,
        instead="set hold_out, or call streamsvm.evaluate on the model",
        changeable="New path of the validation data of a fit, or other validation data.",
    )  # fmt: skip
    from_: Annotated[str | None, checks.PATH] = _training(
        "Model, or run with a model, from which to continue with new rows: minimise ½‖W - W₀‖² + C times the "
        "loss, where W₀ are the weights of the model. Its transforms, classes and features are kept.",
        "Classes and features are matched by name; new classes and features start with weights of 0. With a "
        "small C, the weights stay near the model.", scope=MATRIX, searched=True,
    )  # fmt: skip
    hold_out: Annotated[str | None, _PART] = _training(
        "Hold out a part of each class and measure the accuracy on it. For example, 1/10 is the first of 10 "
        "parts, which are determined by a hash of the rows' numbers in the input.",
        "Groups of rows are never divided. Held-out rows are not used for C auto, for the "
        "statistics of transforms, or for balanced class weights.", scope=MATRIX, searched=True,
    )  # fmt: skip
    hold_out_by: Annotated[str | None, checks.TEXT._replace(accepts="Any")] = _training(
        "Column of a table or of obs, such as a donor; for a matrix or LIBSVM text, a file with one value "
        "per line. fit, tune and the search for C hold out rows with equal values together.",
        "For a matrix in memory, also an array of shape (n,). The column does not become a feature. A store "
        "that was converted with this setting uses it. ``docs/tuning.md`` explains it.", scope=MATRIX,
    )  # fmt: skip
    class_weight: Annotated[str | Mapping[str, float] | None, _CLASS_WEIGHT] = _weights(
        "Weights of the rows of each class: balanced, so that all classes have the same total weight, or a "
        "file with a class and its weight on each line (default weight: 1).",
        "Balanced weights are number of labels / (number of classes × rows of the class). The cost of a row "
        "is C times the weight of its class times the weight of the row. For ``ovr`` and ``ovr2``, the "
        "weight of a class applies to the positive rows of its problem, as in LIBLINEAR.", scope=MATRIX,
    )  # fmt: skip
    sample_weight: Annotated[str | None, checks.TEXT._replace(accepts="Any")] = _weights(
        "Numeric column of obs with the weights of the rows. A store that was converted with weights stores "
        "them in the column weight, and they are used unless this is none.",
        "For a matrix, also an array of shape (n,). Rows with weight 0 are left out. With the loss "
        "``chain``, the mean weight of each group is used.", scope=MATRIX,
    )  # fmt: skip
    weights: Annotated[str | None, checks.PATH] = _weights(
        "Weights of the rows of a matrix, text or a table: a file with one weight per line; for a matrix "
        "also .npy.", instead="pass sample_weight",
    )  # fmt: skip
    costs: Annotated[str | None, checks.TABLE] = _weights(
        "Table of margins by which each class (row) must win against each other class (column): CSV with "
        "class names in the first line and column, or .npy in class order.",
        "Or a DataFrame, or an array of shape (k, k).", scope=ESTIMATOR,
    )  # fmt: skip
    tree: Annotated[str | None, checks.TABLE] = _weights(
        "Tree of the classes, with a child and its parent on each line, instead of costs. The margin between "
        "two classes is the length of the path between them.", "Or a mapping from child to parent.",
        scope=ESTIMATOR,
    )  # fmt: skip
    transform: Annotated[str | None, _TRANSFORM] = _model(
        "Transforms of each row, applied in this order in training and prediction: normalize[=sum], log1p, "
        "binarize, idf, df=power, center, scale=std|maxabs, clip=v, select=FILE, hash=bits, l2, "
        "bias[=value], fourier=D[:gamma=x]; for example normalize=1e4,log1p,scale=std; or none. The default "
        "is center,scale=std,bias for a table with numeric columns, normalize=1e4,log1p,bias for AnnData "
        "with counts, log1p,idf,l2,bias for text without other columns, and bias for other data. auto "
        "compares several choices on a sample of the rows.",
        "Or a list of such strings. A DataFrame is a table. ``bias`` is a constant feature with the "
        "coefficients `Model.intercept_`. Transforms that need statistics of all rows read the data once "
        "more. ``docs/transforms.md`` explains each transform.", scope=MATRIX, searched=True,
    )  # fmt: skip
    valid_labels: Annotated[str | None, checks.PATH] = _labels(
        "Labels of the matrix in valid.", instead="call streamsvm.evaluate on the model",
        changeable="New path of the labels of the matrix in valid, or other labels.",
    )  # fmt: skip
    join: Annotated[str, checks.one_of("inner", "outer")] = _features(
        "Features of several files: those that all files have (inner), or those that any file has (outer).",
        default="inner", instead="concatenate the matrices first",
    )  # fmt: skip
    keep_duals: bool = _fine(
        "Keep the duals, so that passes can be added later; the default unless passes is 1.", scope=MATRIX,
        searched=True,
    )  # fmt: skip
    block_rows: Annotated[int | None, checks.whole(1)] = _fine(
        "Maximum number of rows in a block; by default, memory is the only limit.", scope=MATRIX
    )
    slice_rows: Annotated[int | None, checks.whole()] = _fine(
        "Read data that is not shuffled in slices of this many rows; a block consists of slices from all "
        "over the data. 0 keeps the order. The default is determined by chunks and memory.", scope=MATRIX,
    )  # fmt: skip
    split: Annotated[str, checks.one_of(AUTO, CLASSES, ROWS)] = _cores(
        "How to split training if there are several splits: by classes, in groups that are solved in pairs; "
        "by rows, with steps that are added up; or auto: by classes if each worker then has less work than "
        "one core would have.",
        "The split by classes is the scheme of Alber et al. (2017) with exact block steps; the split by rows "
        "is CoCoA+ (Ma et al. 2015).", default=AUTO, scope=ESTIMATOR,
    )  # fmt: skip
    splits: Annotated[int, checks.whole(1, 512)] = _cores(
        "Number of parts of each block that are trained at the same time. The model depends on this number, "
        "but not on the number of workers.", default=1, scope=ESTIMATOR,
    )  # fmt: skip
    # Internal: ascending factors of C in the first passes; the last factor is used in all later passes.
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
        """Loss as it is trained; a split by classes changes the form of some losses."""
        loss = get_loss(self.loss)
        return loss.by_classes if self.splits > 1 and self.split == CLASSES else loss

    @property
    def has_pair_margins(self) -> bool:
        """True if a table or a tree defines a margin for each pair of classes."""
        return self.costs is not None or self.tree is not None

    @property
    def can_split_classes(self) -> bool:
        """True if no setting other than the loss prevents a split by classes."""
        loss = get_loss(self.loss)
        plain = self.class_weight is None or not loss.own_dual  # else the weights differ within a row
        return plain and not self.has_pair_margins and self.solver == loss.solvers[0]

    @property
    def is_search(self) -> bool:
        """True in a search for C, which scores held-out rows once for each C and is never resumed."""
        return bool(self.C_factors) and self.tol is None

    def share_of_C(self, number: int) -> float:
        """Return the C of pass `number` (1, 2, ...) divided by the setting C."""
        factors = self.C_factors or (1.0,)
        return factors[min(max(number, 1), len(factors)) - 1]

    def is_measured(self, number: int) -> bool:
        """Return True if held-out rows are scored after a pass; a search scores the last pass of each C."""
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
        Time ("0.5s", "60s", "5m"), number of seconds, or number of blocks as text ("8 blocks", or "8"). The
        default is 20 times the duration of the last commit, but at least 10 seconds.

    Raises
    ------
    SettingsError
        If `every` has a different form or is not positive.
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
                f"cannot checkpoint every {every!r}; set a time (0.5s, 60s, 5m) or a number of blocks (8)"
            )
        self.restart()

    def restart(self, cost: float = 0.0) -> None:
        """Begin the next interval, after a commit that took `cost` seconds."""
        if self._is_relative:
            self.seconds = max(10.0, 20 * cost)
        self._begin = time.monotonic()
        self._count = 0

    def due(self, blocks: int) -> bool:
        """Add `blocks` to the count of blocks, and return True if it is time to commit."""
        self._count += blocks
        if self.blocks:
            return self._count >= self.blocks
        return time.monotonic() - self._begin >= (self.seconds or 0)
