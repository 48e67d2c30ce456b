"""Export of a model as an ONNX graph of the operators that every runtime has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.base.text import format_size
from streamsvm.errors import ModelError, extra
from streamsvm.exporting.folding import Step, fold
from streamsvm.model.model import Model
from streamsvm.model.scoring import is_sparsemax

_OPSET, _IR_VERSION = 17, 8  # which runtimes of 2022 and later read
_MAX_BYTES = 2**31 - 2**20  # of an ONNX file


def write_onnx(model: Model, path: Path, *, prune: float) -> None:
    """Write a graph with the input ``X``, (n, n_features_in), in the model's dtype, and these outputs:

    ``label``, (n,): int64 if the classes are integers, else strings; ``scores``, (n, n_classes); and, if the
    model has probabilities, ``probabilities``, (n, n_classes). A model of several labels a row has
    ``scores`` alone.

    Raises
    ------
    ModelError
        If onnx is not installed, a transform has no operators, or the graph would take 2 GiB or more.
    """
    with extra(ModelError, "onnx is not installed", "onnx"):
        from onnx import TensorProto, helper, numpy_helper
    dtype, n_classes = model.dtype, len(model.classes_)
    size = model.n_features_in_ * n_classes * dtype.itemsize
    if size > _MAX_BYTES:
        raise ModelError(
            f"the coefficients take {format_size(size)} as a dense matrix, and an ONNX file holds up to "
            "2 GiB; export to sklearn or streamsvm"
        )
    folded = fold(model, prune)
    graph = _Graph(dtype)
    x = "X"
    for step in folded.steps:
        x = _apply(graph, step, x)
    x = graph.node("MatMul", x, graph.constant(folded.coef.toarray()))
    graph.node("Add", x, graph.constant(folded.intercept), out="scores")
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.DOUBLE
    outputs: list[Any] = [("scores", kind, ["n", n_classes])]
    if not model.multilabel:
        best = graph.node("ArgMax", "scores", axis=1, keepdims=0, select_last_index=0)
        whole = model.classes_.dtype == np.int64
        classes = model.classes_ if whole else np.array(model.record["classes"], dtype=object)
        graph.constants.append(numpy_helper.from_array(classes, "classes"))
        graph.node("Gather", "classes", best, out="label", axis=0)
        outputs.insert(0, ("label", TensorProto.INT64 if whole else TensorProto.STRING, ["n"]))
    if model.temperature is not None and not model.multilabel:
        if is_sparsemax(model.record):
            _sparsemax(graph, n_classes)
        else:
            scaled = graph.node("Div", "scores", graph.constant(np.array(model.temperature)))
            graph.node("Softmax", scaled, out="probabilities", axis=1)
        outputs.append(("probabilities", kind, ["n", n_classes]))
    made = helper.make_graph(
        graph.nodes,
        "streamsvm",
        [helper.make_tensor_value_info("X", kind, ["n", model.n_features_in_])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        graph.constants,
    )
    proto = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION,
        producer_name="streamsvm",
    )  # fmt: skip
    path.write_bytes(proto.SerializeToString())


class _Graph:
    """Nodes and constants of a graph, with numbered names."""

    def __init__(self, dtype: np.dtype) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._dtype = dtype

    def constant(self, value: Any, dtype: Any = None) -> str:
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype or self._dtype), name))
        return name

    def node(self, operator: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        from onnx import helper

        out = out or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [out], **attributes))
        return out

    def nonzero(self, x: str) -> str:
        """Replace zeros of `x` by 1, to divide by it."""
        is_zero = self.node("Equal", x, self.constant(0))
        return self.node("Where", is_zero, self.constant(1), x)


def _apply(graph: _Graph, step: Step, x: str) -> str:
    """Add a step to the graph, and return the name of its output."""
    if isinstance(step, np.ndarray):
        scaled = graph.node("Mul", x, graph.constant(step[0]))
        return graph.node("Add", scaled, graph.constant(step[1])) if step[1].any() else scaled
    if step.name == "log1p":
        return _log1p(graph, x)
    if step.name == "l2":
        return graph.node("Div", x, graph.nonzero(graph.node("ReduceL2", x, axes=[1], keepdims=1)))
    if step.name == "normalize":
        total = graph.node("ReduceSum", x, graph.constant([1], np.int64), keepdims=1)
        scaled = graph.node("Mul", x, graph.constant(step.target))  # type: ignore[attr-defined]
        return graph.node("Div", scaled, graph.nonzero(total))
    if step.name == "clip":
        most = step.most  # type: ignore[attr-defined]
        return graph.node("Clip", x, graph.constant(-most), graph.constant(most))
    if step.name == "binarize":
        above = graph.node("Greater", x, graph.constant(0))
        return graph.node("Where", above, graph.constant(1), graph.constant(0))
    raise ModelError(f"the model transforms rows by {step.name}, which cannot be exported to ONNX")


def _sparsemax(graph: _Graph, n_classes: int) -> None:
    """Add the projection of the scores to the simplex, as in `streamsvm.model.scoring`."""
    shifted = graph.node("Sub", "scores", graph.node("ReduceMax", "scores", axes=[1], keepdims=1))
    falling = graph.node("TopK", shifted, graph.constant([n_classes], np.int64))
    graph.nodes[-1].output.append("order")
    excess = graph.node("CumSum", falling, graph.constant(1, np.int64))
    excess = graph.node("Sub", excess, graph.constant(1))
    thresholds = graph.node("Div", excess, graph.constant(np.arange(1, n_classes + 1)))
    threshold = graph.node("ReduceMax", thresholds, axes=[1], keepdims=1)
    graph.node("Relu", graph.node("Sub", shifted, threshold), out="probabilities")


def _log1p(graph: _Graph, x: str) -> str:
    """Add log(1 + x), accurate where 1 + x is rounded: x log(u) / (u - 1) with the rounded u = 1 + x.

    The errors of both factors cancel (Goldberg 1991, "What every computer scientist should know about
    floating-point arithmetic", Theorem 4).
    """
    u = graph.node("Add", x, graph.constant(1))
    difference = graph.node("Sub", u, graph.constant(1))
    ratio = graph.node("Div", graph.node("Log", u), graph.nonzero(difference))
    is_zero = graph.node("Equal", difference, graph.constant(0))
    return graph.node("Where", is_zero, x, graph.node("Mul", x, ratio))
