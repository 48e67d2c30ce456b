"""Linear multi-class SVMs on data larger than memory, trained exactly in a few passes over the disk.

    from streamsvm import evaluate, fit, load_model, resume

    result = fit("train.zarr", out="run", passes=3, C=1.0)
    print(evaluate("run", "test.zarr").accuracy)
    labels = load_model("run").predict(X)

Everything is loaded on first use, so importing the package is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamsvm_converters.convert import convert

    from streamsvm import plot
    from streamsvm.api import FitResult, OnlineResult, fit, online
    from streamsvm.api_runs import plan, resume
    from streamsvm.calibration import Calibration, calibrate
    from streamsvm.data.rows import Rows
    from streamsvm.exporting import Exported, export_model
    from streamsvm.label_metrics import Evaluation
    from streamsvm.label_set_metrics import LabelSetEvaluation
    from streamsvm.metrics import evaluate
    from streamsvm.model import Model, load_model
    from streamsvm.predictions import Predictions, predict
    from streamsvm.reporting.page import report
    from streamsvm.settings import OnlineSettings, Settings
    from streamsvm.store import Store, open_store
    from streamsvm.training.results import TuneResult
    from streamsvm.tuning import tune

__version__ = "0.1.0"

_MODULES = {
    "Calibration": "calibration",
    "Evaluation": "label_metrics",
    "Exported": "exporting",
    "FitResult": "api",
    "LabelSetEvaluation": "label_set_metrics",
    "Model": "model",
    "OnlineResult": "api",
    "OnlineSettings": "settings",
    "Predictions": "predictions",
    "Rows": "data.rows",
    "Settings": "settings",
    "Store": "store",
    "TuneResult": "training.results",
    "calibrate": "calibration",
    "evaluate": "metrics",
    "export_model": "exporting",
    "fit": "api",
    "load_model": "model",
    "online": "api",
    "open_store": "store",
    "plan": "api_runs",
    "predict": "predictions",
    "report": "reporting.page",
    "resume": "api_runs",
    "tune": "tuning",
}
__all__ = [
    "Calibration",
    "Evaluation",
    "Exported",
    "FitResult",
    "LabelSetEvaluation",
    "Model",
    "OnlineResult",
    "OnlineSettings",
    "Predictions",
    "Rows",
    "Settings",
    "Store",
    "TuneResult",
    "calibrate",
    "convert",
    "evaluate",
    "export_model",
    "fit",
    "load_model",
    "online",
    "open_store",
    "plan",
    "plot",
    "predict",
    "report",
    "resume",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "plot":
        return importlib.import_module("streamsvm.plot")
    if name == "convert":  # which nothing else here knows
        return importlib.import_module("streamsvm_converters").convert
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
