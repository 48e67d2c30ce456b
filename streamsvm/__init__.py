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
    from streamsvm.data.rows import Rows
    from streamsvm.exporting import Exported, export_model
    from streamsvm.model.model import Model, load_model
    from streamsvm.model.results import TuneResult
    from streamsvm.prediction.calibration import Calibration, calibrate
    from streamsvm.prediction.label_metrics import Evaluation
    from streamsvm.prediction.label_set_metrics import LabelSetEvaluation
    from streamsvm.prediction.metrics import evaluate
    from streamsvm.prediction.predictions import Predictions, predict
    from streamsvm.reporting.page import report
    from streamsvm.settings.fit import OnlineSettings, Settings
    from streamsvm.store import Store, open_store
    from streamsvm.tuning.tune import tune

__version__ = "0.1.0"

_MODULES = {
    "Calibration": "streamsvm.prediction.calibration",
    "Evaluation": "streamsvm.prediction.label_metrics",
    "Exported": "streamsvm.exporting",
    "FitResult": "streamsvm.api",
    "LabelSetEvaluation": "streamsvm.prediction.label_set_metrics",
    "Model": "streamsvm.model.model",
    "OnlineResult": "streamsvm.api",
    "OnlineSettings": "streamsvm.settings.fit",
    "Predictions": "streamsvm.prediction.predictions",
    "Rows": "streamsvm.data.rows",
    "Settings": "streamsvm.settings.fit",
    "Store": "streamsvm.store",
    "TuneResult": "streamsvm.model.results",
    "calibrate": "streamsvm.prediction.calibration",
    "convert": "streamsvm_converters",
    "evaluate": "streamsvm.prediction.metrics",
    "export_model": "streamsvm.exporting",
    "fit": "streamsvm.api",
    "load_model": "streamsvm.model.model",
    "online": "streamsvm.api",
    "open_store": "streamsvm.store",
    "plan": "streamsvm.api_runs",
    "predict": "streamsvm.prediction.predictions",
    "report": "streamsvm.reporting.page",
    "resume": "streamsvm.api_runs",
    "tune": "streamsvm.tuning.tune",
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
    if name in ("errors", "plot"):
        return importlib.import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
