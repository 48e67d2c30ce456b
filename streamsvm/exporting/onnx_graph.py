"""Export a model as an ONNX graph of standard operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base.text import format_size
from streamsvm.errors import ModelError, Remedy, extra
from streamsvm.exporting.columns import table_columns
from streamsvm.exporting.folding import Cosines, Step, fold
from streamsvm.model.model import Model
from streamsvm.model.scoring import is_sparsemax

_OPSETS, _IR_VERSION = {"": 17, "ai.onnx.ml": 3}, 8  # supported by runtimes since 2022
_MAX_BYTES = 2**31 - 2**20


def write_onnx(model: Model, path: Path, *, prune: float) -> None:
    """Write the graph that `export_model` describes.

    Numbers have the model's dtype, or float64 if the model was trained on a table, because the values of a
    column may be large compared with their deviations. Raises `ModelError` if onnx is not installed, if ONNX
    has no operators for a transform or a column, or if the graph would exceed the limit of 2 GiB.
    """
    with extra(ModelError, "the export needs onnx, which is not installed", "onnx"):
        import onnx
    columns, n_classes = table_columns(model, "ONNX"), len(model.classes_)
    graph = _Graph(onnx, np.dtype(np.float64) if columns else model.dtype)
    size = max(model.n_features_in_, model.n_features) * n_classes * graph.dtype.itemsize
    size += sum(each.held_bytes for each in model.transforms)
    if size > _MAX_BYTES:
        raise ModelError(
            f"the coefficients take {format_size(size)}, and ONNX allows 2 GiB; export to another format"
        )
    folded = fold(model, prune)
    if columns:
        parts = [part for column in columns for part in _encoded(graph, column)]
        x = graph.node("Concat", *parts, axis=1)
    else:
        x = "X"
        graph.inputs.append((x, graph.type, ["n", model.n_features_in_]))
    for step in folded.steps:
        x = _apply(graph, step, x)
    x = graph.node("MatMul", x, graph.constant(folded.coef.toarray()))
    graph.node("Add", x, graph.constant(folded.intercept), out="scores")
    outputs: list[Any] = [("scores", graph.type, ["n", n_classes])]
    if not model.multilabel:
        best = graph.node("ArgMax", "scores", axis=1, keepdims=0, select_last_index=0)
        whole = model.classes_.dtype == np.int64
        classes = model.classes_ if whole else np.array(model.record["classes"], dtype=object)
        graph.node("Gather", graph.constant(classes, classes.dtype), best, out="label", axis=0)
        outputs.insert(0, ("label", onnx.TensorProto.INT64 if whole else onnx.TensorProto.STRING, ["n"]))
    if model.temperature is not None and not model.multilabel:
        if is_sparsemax(model.record):
            _sparsemax(graph, n_classes)
        else:
            scaled = graph.node("Div", "scores", graph.constant(np.array(model.temperature)))
            graph.node("Softmax", scaled, out="probabilities", axis=1)
        outputs.append(("probabilities", graph.type, ["n", n_classes]))
    ends = [[onnx.helper.make_tensor_value_info(*each) for each in end] for end in (graph.inputs, outputs)]
    proto = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "streamsvm", *ends, graph.constants),
        opset_imports=[onnx.helper.make_opsetid(*each) for each in _OPSETS.items()],
        ir_version=_IR_VERSION, producer_name="streamsvm",
    )  # fmt: skip
    path.write_bytes(proto.SerializeToString())


class _Graph:
    def __init__(self, onnx: Any, dtype: np.dtype) -> None:
        self.onnx, self.dtype = onnx, dtype
        self.type = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"streamsvm.c{len(self.constants)}"
        array = np.asarray(value, dtype or self.dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        out = out or f"streamsvm.t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [out], **attributes))
        return out

    def nonzero(self, x: str) -> str:
        """Replace zeros in `x` with 1, for use as a divisor."""
        is_zero = self.node("Equal", x, self.constant(0))
        return self.node("Where", is_zero, self.constant(1), x)


def _encoded(graph: _Graph, column: dict[str, Any]) -> list[str]:
    x, marked, is_number = column["name"], column.get("indicator", False), column["type"] == "number"
    if x in ("label", "scores", "probabilities"):
        raise ModelError(f"column '{x}' has the same name as an output", remedy=Remedy("export to sklearn"))
    graph.inputs.append((x, graph.type if is_number else graph.onnx.TensorProto.STRING, ["n", 1]))
    if not is_number:
        categories = column["values"] + [""] * marked  # the empty category marks missing values
        one_hot = graph.node("OneHotEncoder", x, domain="ai.onnx.ml", cats_strings=categories, zeros=1)
        return [graph.node("Cast", graph.node("Flatten", one_hot), to=graph.type)]
    if "fill" not in column:
        return [x]
    missing = graph.node("IsNaN", x)
    filled = graph.node("Where", missing, graph.constant(column["fill"]), x)
    return [filled, graph.node("Cast", missing, to=graph.type)] if marked else [filled]


def _apply(graph: _Graph, step: Step, x: str) -> str:
    if isinstance(step, np.ndarray):
        scaled = graph.node("Mul", x, graph.constant(step[0]))
        return graph.node("Add", scaled, graph.constant(step[1])) if step[1].any() else scaled
    if isinstance(step, Cosines):
        x = graph.node("MatMul", x, graph.constant(step.weights))
        x = graph.node("Cos", graph.node("Add", x, graph.constant(step.offsets)))
        return graph.node("Mul", x, graph.constant(np.sqrt(2 / len(step.offsets))))
    if step.name == "log1p":
        return _log1p(graph, x)
    if step.name == "l2":
        return graph.node("Div", x, graph.nonzero(graph.node("ReduceL2", x, axes=[1], keepdims=1)))
    if step.name == "normalize":
        total = graph.node("ReduceSum", x, graph.constant([1], np.int64), keepdims=1)
        scaled = graph.node("Mul", x, graph.constant(step.target))  # type: ignore[attr-defined]
        return graph.node("Div", scaled, graph.nonzero(total))
    if step.name == "clip":
        limit = step.most  # type: ignore[attr-defined]
        return graph.node("Clip", x, graph.constant(-limit), graph.constant(limit))
    if step.name == "binarize":
        return graph.node("Cast", graph.node("Greater", x, graph.constant(0)), to=graph.type)
    raise ModelError(f"ONNX cannot apply the transform {step.name}; export to streamsvm")


def _sparsemax(graph: _Graph, n_classes: int) -> None:
    """Add nodes that project the scores onto the simplex (see `streamsvm.model.scoring`)."""
    shifted = graph.node("Sub", "scores", graph.node("ReduceMax", "scores", axes=[1], keepdims=1))
    falling = graph.node("TopK", shifted, graph.constant([n_classes], np.int64))
    graph.nodes[-1].output.append(f"{falling}.order")
    excess = graph.node("CumSum", falling, graph.constant(1, np.int64))
    excess = graph.node("Sub", excess, graph.constant(1))
    thresholds = graph.node("Div", excess, graph.constant(np.arange(1, n_classes + 1)))
    threshold = graph.node("ReduceMax", thresholds, axes=[1], keepdims=1)
    graph.node("Relu", graph.node("Sub", shifted, threshold), out="probabilities")


def _log1p(graph: _Graph, x: str) -> str:
    """Add nodes for log(1 + x) = x log(u) / (u - 1), where the rounding errors of u = 1 + x cancel.

    Source: Goldberg 1991, "What every computer scientist should know about floating-point arithmetic", Thm 4.
    """
    u = graph.node("Add", x, graph.constant(1))
    difference = graph.node("Sub", u, graph.constant(1))
    ratio = graph.node("Div", graph.node("Log", u), graph.nonzero(difference))
    is_zero = graph.node("Equal", difference, graph.constant(0))
    return graph.node("Where", is_zero, x, graph.node("Mul", x, ratio))
