"""Settings of `tune` for the candidates, and for how their accuracy is measured."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Annotated, Any

from streamsvm.errors import SettingsError
from streamsvm.settings import checks
from streamsvm.settings.field import CheckedSettings, as_in, setting
from streamsvm.settings.fit import AUTO, Settings

_as_in_fit = functools.partial(as_in, Settings, group="", details="")
_HOLD_OUT = "1/10"


@dataclasses.dataclass(frozen=True)
class SearchSettings(CheckedSettings):
    """Settings of `streamsvm.tune`, documented there, that `fit` lacks or declares differently."""

    C: Annotated[tuple[Any, ...], checks.several(checks.TEXT)._replace(accepts="Any")] = setting(
        "Values of C: a range such as 2^-6:2^3, in which values differ by factors of the base; numbers "
        "separated by commas; or auto for 10 values around the C of fit, which differ by factors of 2.",
        "The factor is 2 in a range without a base, such as 0.01:10. With auto, each training run derives C "
        "from its training rows. The table shows C for all rows, which the final run uses.", default=AUTO,
    )  # fmt: skip
    loss: tuple[str, ...] = _as_in_fit(
        "loss", help="Loss (see fit); several (ww,cs) are compared.", check=checks.several(checks.TEXT)
    )
    margin: tuple[float | None, ...] | None = _as_in_fit(
        "margin", help="Margin scale of Weston-Watkins; several are compared.",
        check=checks.several(checks.NOT_NEGATIVE),
    )  # fmt: skip
    transform: tuple[str | None, ...] | None = _as_in_fit(
        "transform", help="Transforms of the rows (see fit), or none; several are compared.",
        details="A list contains strings such as ``df=-0.25,l2``; None is the default for the data.",
        check=checks.several(checks.TEXT),
    )  # fmt: skip
    folds: Annotated[int | None, checks.whole(2, 100)] = setting(
        "Number of parts of which each is held out in turn, in a training run of its own (cross-validation).",
        "The settings with the best mean accuracy are chosen; the standard deviation is reported.",
    )  # fmt: skip
    hold_out: str | None = _as_in_fit(
        "hold_out", help="Part of the rows to hold out and measure the accuracy on; by default 1/10."
    )
    valid: str | None = _as_in_fit("valid", help="Store, text or table to score instead of held-out rows.")
    passes_each: Annotated[int, checks.whole(1)] = setting("Number of passes for each value of C.", default=2)
    passes: int = _as_in_fit("passes", help="Number of passes of the final training run, on all rows.")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("folds", "hold_out", "valid") if getattr(self, name) is not None]
        if len(given) > 1:
            raise SettingsError(f"{' and '.join(given)} cannot be combined; set only one", setting=given[0])

    @property
    def compared(self) -> dict[str, tuple[Any, ...]]:
        """Values of the settings whose combinations are compared, by name."""
        losses = tuple(",".join(map(str, self.loss)).split(","))
        return {"loss": losses, "margin": self.margin or (None,), "transform": self.transform or (None,)}

    @property
    def candidates(self) -> list[dict[str, Any]]:
        return [
            dict(zip(self.compared, values, strict=True))
            for values in itertools.product(*self.compared.values())
        ]

    @property
    def parts(self) -> list[str | None]:
        """Part of the rows that each training run holds out; None if the accuracy is measured on `valid`."""
        if self.folds is not None:
            return [f"{part}/{self.folds}" for part in range(1, self.folds + 1)]
        return [self.hold_out or _HOLD_OUT if self.valid is None else None]
