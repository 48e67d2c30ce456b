"""Settings of `online`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated, Any

from streamsvm.errors import SettingsError
from streamsvm.losses import get_loss
from streamsvm.settings import checks
from streamsvm.settings.field import as_in, declared, setting
from streamsvm.settings.fit import AUTO, NONE, LossSettings, Settings
from streamsvm.settings.reading import DataSettings

# With a constant of 1, the classes of the last rows in a single pass would dominate the intercepts.
TRANSFORM = "bias=0.3"
TEXT_TRANSFORM = f"log1p,l2,{TRANSFORM}"  # for n-gram counts
_as_in_fit = functools.partial(as_in, Settings)


@dataclasses.dataclass(frozen=True)
class OnlineSettings(LossSettings):
    """Settings of `streamsvm.online`, documented there; None is replaced by the default.

    Raises
    ------
    SettingsError
        If a setting is invalid.
    """

    transform: str | None = _as_in_fit(
        "transform", details="",
        help="Transforms of each row, applied in this order in training and prediction: counts, "
        "normalize[=sum], log1p, binarize, clip=v, hash=bits, l2, bias[=value], fourier=D:gamma=x; or none. "
        f"The default is {TRANSFORM}, and {TEXT_TRANSFORM} for a store of text.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        loss = get_loss(self.loss)
        if loss.extra_columns or loss.sequences or self.loss == AUTO:
            raise SettingsError(
                f"the loss {self.loss} needs all classes, whole sequences or a sample, but a stream yields "
                "one row at a time; train with fit, or with another loss",
                setting="loss",
            )
        for name, value in self.one_pass().of_loss.items():
            self._set(name, value)

    def one_pass(self) -> Settings:
        """Return the settings of `fit` for visiting each row once, in the order of the data."""
        return Settings(
            C=self.C, loss=self.loss, dtype=self.dtype, **self.of_loss,
            transform=self.transform, passes=1, keep_duals=False, inner_passes=0, gap="none",
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class StoreSettings(DataSettings):
    """Settings of `streamsvm.online` for reading a store, documented there."""

    join: str = _as_in_fit("join")
    sample_weight: str | None = _as_in_fit(
        "sample_weight", check=checks.one_of(NONE), details="",
        help="none: ignore the row weights in a store.",
    )  # fmt: skip
    unseen_label: Annotated[str, checks.one_of("error", "keep")] = setting(
        "With known classes: whether another label is an error, or is kept and counted as wrong.",
        default="error", group="Labels",
    )  # fmt: skip
    memory: int = _as_in_fit(
        "memory", default=2**30,
        help="Memory budget in bytes, or as text such as 500M or 2G; half of it is for reading rows. "
        "Weights are in memory-mapped files of any size.",
    )  # fmt: skip

    @property
    def of_fit(self) -> dict[str, Any]:
        """Values of the settings that are also fields of `Settings`."""
        return {name: value for name, value in vars(self).items() if name in declared(Settings)}
