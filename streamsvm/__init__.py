"""Train linear multi-class SVMs exactly, in a few passes over data that may be larger than memory.

    from streamsvm import evaluate, fit, load_model, resume

    result = fit("train.zarr", out="run", passes=3, C=1.0)
    print(evaluate("run", "test.zarr").accuracy)
    labels = load_model("run").predict(X)

Submodules are imported on first use, so importing the package is fast.
"""  # Type checkers read `__init__.pyi`, which `python tests/make_stubs.py` writes

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_NAMES = {
    "streamsvm.api": "fit online plan resume",
    "streamsvm.data.rows": "Rows",
    "streamsvm.exporting.export": "Exported export_model",
    "streamsvm.model.model": "Model load_model",
    "streamsvm.model.results": "FitResult OnlineResult TuneResult",
    "streamsvm.prediction.calibration": "Calibration calibrate",
    "streamsvm.prediction.evaluation": "Evaluation evaluate",
    "streamsvm.prediction.label_set_evaluation": "LabelSetEvaluation",
    "streamsvm.prediction.predictions": "Predictions predict",
    "streamsvm.reporting.page": "report",
    "streamsvm.settings.fit": "Settings",
    "streamsvm.settings.online": "OnlineSettings",
    "streamsvm.store": "Store open_store",
    "streamsvm.tuning.tune": "tune",
    "streamsvm_converters": "convert",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted([*_MODULES, "plot"])


def __getattr__(name: str) -> Any:
    if name in ("errors", "plot"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
