"""Writes the stubs that type checkers and editors read: signatures with all settings, as declared.

    python tests/make_stubs.py

A test compares the files with what this makes.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import streamsvm
from streamsvm.sklearn import StreamSVMClassifier

FUNCTIONS = ("fit", "plan", "resume", "online", "tune")  # which take settings
HEAD = '''"""{title}, for type checkers and editors: written by tests/make_stubs.py."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

'''


def signature(function: Any) -> str:
    """A function without its body, each parameter on a line."""
    found = inspect.signature(function)
    lines = []
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and "*" not in lines:
            lines.append("*")
        of_type = "" if each.annotation is each.empty else f": {each.annotation}"
        default = "" if each.default is each.empty else f" = {each.default!r}"
        lines.append(f"{each.name}{of_type}{default}")
    parameters = "".join(f"    {line},\n" for line in lines)
    return f"def {function.__name__}(\n{parameters}) -> {found.return_annotation}:\n"


def docstring(of: Any) -> str:
    text = f'r"""{inspect.getdoc(of)}\n"""\n'
    return textwrap.indent(text, "    ")


def library() -> str:
    """The stub of `streamsvm`."""
    names = [name for name in streamsvm.__all__ if name not in (*FUNCTIONS, "plot")]
    lines = [
        "from streamsvm import errors as errors, plot as plot",
        "from streamsvm.base.progress import Progress, Report",
        "from streamsvm.training.stream import Stream",
        *(f"from {getattr(streamsvm, name).__module__} import {name} as {name}" for name in names),
        f"\n__version__: str\n__all__ = {streamsvm.__all__}\n",
    ]
    functions = [getattr(streamsvm, name) for name in FUNCTIONS]
    made = [signature(function) + docstring(function) for function in functions]
    return HEAD.format(title="All names of `streamsvm`") + "\n".join(lines + made)


def estimator() -> str:
    """The stub of `streamsvm.sklearn`: the class of the source, with its parameters."""
    parameters = inspect.signature(StreamSVMClassifier).parameters.values()
    attributes = "".join(f"    {each.name}: {each.annotation}\n" for each in parameters)
    return (
        HEAD.format(title="The estimator for scikit-learn")
        + "from streamsvm.sklearn import estimator\n\n"
        + "class StreamSVMClassifier(estimator.StreamSVMClassifier):\n"
        + docstring(StreamSVMClassifier)
        + attributes
        + textwrap.indent(signature(StreamSVMClassifier.__init__), "    ")
        + "        ...\n"
    )


ROOT = Path(streamsvm.__file__).parent
STUBS = {ROOT / "__init__.pyi": library, ROOT / "sklearn" / "__init__.pyi": estimator}

if __name__ == "__main__":
    for path, stub in STUBS.items():
        path.write_text(stub(), encoding="utf-8")
