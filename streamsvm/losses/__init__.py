"""Registry of the losses, each of which is a formulation of the multi-class SVM.

All losses are trained through their duals. Unless the module of a loss states otherwise, a row x of class y
with duals b_j >= 0 adds M Σ_j b_j x to the weights of class y and -M b_j x to the weights of each wrong class
j, where M is the margin scale. The dual objective is the sum of the terms of all duals minus ½‖W‖². The
training loops are the same for all row losses (see `streamsvm.kernels.frame.make_kernels`).
"""

from __future__ import annotations

from streamsvm.errors import SettingsError
from streamsvm.losses.base import ON_CHAINS, Loss

_EXACT = ("newton", "sorted")
_MARGINS = (1.0, 0.5)

_ALL = (
    Loss("ww", "Weston-Watkins (Wang & Scott 2021)", "weston_watkins", (*_EXACT, "shark"), _MARGINS,
         label_sets=True, linear_duals=True, starts_at_means=True, common_dual=True,
         class_splits=True),
    Loss("ww2", "Weston-Watkins, squared hinge", "weston_watkins", _EXACT, _MARGINS,
         label_sets=True, common_dual=True, class_splits=True),
    Loss("wws", "Weston-Watkins, smoothed hinge", "weston_watkins", _EXACT, _MARGINS,
         parameters=("smooth",), label_sets=True, common_dual=True, class_splits=True),
    Loss("cs", "Crammer-Singer (Blondel, Fujino & Ueda 2014)", "crammer_singer", _EXACT,
         label_sets=True, linear_duals=True),
    Loss("cs2", "Crammer-Singer, squared", "crammer_singer", _EXACT, label_sets=True),
    Loss("top-m", "mean of the m largest hinges (Lapin, Hein & Schiele 2015)", "top_m",
         ("newton",), parameters=("top",), linear_duals=True),
    Loss("llw", "Lee-Lin-Wahba (Alber et al. 2017)", "lee_lin_wahba", ("newton",),
         dense_duals=True, extra_columns=1, class_splits=True),
    Loss("llw2", "Lee-Lin-Wahba, squared hinge", "lee_lin_wahba", ("newton",),
         dense_duals=True, extra_columns=1, class_splits=True),
    Loss("ovr", "one-vs-rest, hinge (Hsieh et al. 2008)", "one_vs_rest", ("clip",), own_dual=True,
         label_sets=True, linear_duals=True, class_splits=True),
    Loss("ovr2", "one-vs-rest, squared hinge (Hsieh et al. 2008)", "one_vs_rest", ("clip",), own_dual=True,
         label_sets=True, class_splits=True),
    Loss("logistic", "multinomial logistic regression", "logistic", ("newton",), dense_duals=True,
         probabilities="softmax", pair_margins=False),
    Loss("sparsemax", "sparsemax (Martins & Astudillo 2016)", "sparsemax", ("newton",),
         probabilities="sparsemax"),
    Loss("chain", "chain-structured SVM (Mohapatra et al. 2016)", "loss", ON_CHAINS, sequences=True,
         pair_margins=False),
)  # fmt: skip

LOSSES: dict[str, Loss] = {loss.name: loss for loss in _ALL}
ROW_LOSSES: dict[str, Loss] = {loss.name: loss for loss in _ALL if not loss.sequences}


def get_loss(name: str) -> Loss:
    """Return the loss called `name`, or the default for "auto"; raise `SettingsError` if it is unknown."""
    name = _ALL[0].name if name == "auto" else name
    if name not in LOSSES:
        raise SettingsError(f"unknown loss {name!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[name]


def losses_with(attribute: str) -> str:
    return ", ".join(name for name, loss in LOSSES.items() if getattr(loss, attribute))
