"""Linear multi-class SVMs on data larger than memory, trained exactly in a few passes over the disk.

    from streamsvm import fit, load_model, open_store, resume

    result = fit("train.zarr", "run", passes=3, C=1.0)
    model = load_model("run")
    labels = model.predict(X)

Everything is loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsvm.data.rows import Rows
    from streamsvm.metrics import Evaluation, evaluate
    from streamsvm.model import Model, load_model
    from streamsvm.settings import Settings
    from streamsvm.store import Store, open_store
    from streamsvm.training.trainer import FitResult, fit, resume

__version__ = "0.1.0"

_HOMES = {
    "Evaluation": "metrics",
    "FitResult": "training.trainer",
    "Model": "model",
    "Rows": "data.rows",
    "Settings": "settings",
    "Store": "store",
    "evaluate": "metrics",
    "fit": "training.trainer",
    "load_model": "model",
    "open_store": "store",
    "resume": "training.trainer",
}
__all__ = [
    "Evaluation",
    "FitResult",
    "Model",
    "Rows",
    "Settings",
    "Store",
    "evaluate",
    "fit",
    "load_model",
    "open_store",
    "resume",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
