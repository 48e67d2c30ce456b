"""Linear multi-class SVMs on data larger than memory, trained exactly in a few passes over the disk.

    from streamsvm import evaluate, fit, load_model, resume

    result = fit("train.zarr", out="run", passes=3, C=1.0)
    print(evaluate("run", "test.zarr").accuracy)
    labels = load_model("run").predict(X)

Everything is loaded on first use, so importing the package is fast.
"""  # Type checkers read `__init__.pyi`, which `python tests/make_stubs.py` writes

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "Calibration": "streamsvm.prediction.calibration",
    "Evaluation": "streamsvm.prediction.label_metrics",
    "Exported": "streamsvm.exporting",
    "FitResult": "streamsvm.model.results",
    "LabelSetEvaluation": "streamsvm.prediction.label_set_metrics",
    "Model": "streamsvm.model.model",
    "OnlineResult": "streamsvm.model.results",
    "OnlineSettings": "streamsvm.settings.online",
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
    "plan": "streamsvm.api",
    "predict": "streamsvm.prediction.predictions",
    "report": "streamsvm.reporting.page",
    "resume": "streamsvm.api",
    "tune": "streamsvm.tuning.tune",
}
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
