"""Calls as a user writes them, for mypy: an ignored error that it does not find is an error."""

import streamsvm
from streamsvm.sklearn import StreamSVMClassifier
from streamsvm.training.stream import Stream


def calls(stream: Stream) -> None:
    streamsvm.fit("a.zarr", out="run", C="auto", tol=0.1, class_weight={"a": 2.0}, transform=["log1p", "l2"])
    streamsvm.fit("a.zarr", out="run", passes="3")  # type: ignore[arg-type]
    streamsvm.fit("a.zarr", out="run", gap="passes")  # type: ignore[arg-type]
    streamsvm.fit("a.zarr", out="run", n_passes=3)  # type: ignore[call-arg]
    streamsvm.plan("a.zarr", out="run")  # type: ignore[call-arg]
    streamsvm.resume("run", passes=5, valid="b.zarr")
    streamsvm.resume("run", loss="cs")  # type: ignore[call-arg]
    streamsvm.online(stream, out="run", transform="hash=10")
    streamsvm.online(stream, out="run", tol=0.1)  # type: ignore[call-arg]
    streamsvm.tune("a.zarr", out="run", C="2^-6:2^3", loss=["ww", "cs"], splits=2)
    streamsvm.tune("a.zarr", out="run", gap="end")  # type: ignore[call-arg]
    StreamSVMClassifier("cs", C=2.0, n_jobs=2)
    StreamSVMClassifier(memory="1G")  # type: ignore[call-arg]
    StreamSVMClassifier(dtype="float16").fit([[1]], [1])  # type: ignore[arg-type]
