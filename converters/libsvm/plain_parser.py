"""Parse single lines in plain Python, to find the fault in a line that the compiled parser rejected."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from streamsvm_converters.libsvm.lines import MAX_GROUP, MAX_INDEX, Rules

from streamsvm.base.text import CONTROL
from streamsvm.errors import Call, Option, Remedy

_MAX_TOKEN = 40
_TOKEN = re.compile(rb"[^ \t]+")
_QID = re.compile(rb"qid:([+-]?)([0-9]+)")
_PAIR = re.compile(rb"([0-9]+):(.*)", re.DOTALL)
_VALUE = re.compile(rb"[ \t][0-9]+:([^ \t]+)")
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_TABLE = re.compile(rb"[^:\x00-\x08\x0a-\x1f\x7f]*[,;\t][^:\x00-\x08\x0a-\x1f\x7f]*")
_CONTROL = re.compile(f"[{CONTROL}]")
_SEVERAL_LABELS = Remedy("{} reads several labels per row", Option("multilabel", True))
_STORE_OF_SETS = Remedy(
    "{} makes a store with several labels per row", Call("convert", options=(Option("multilabel", True),))
)


class Fault(NamedTuple):
    """Fault in a line. `skips` is False if skipping rows is no remedy because other lines share the fault."""

    at: int
    token: bytes
    problem: str
    remedy: Remedy | None = None
    skips: bool = True


def show(token: bytes) -> str:
    """Return `token` in quotes and on one line, shortened if it is long."""
    text = repr(token.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _MAX_TOKEN else f"{text[:_MAX_TOKEN]}..."


def label_of(token: bytes) -> str | None:
    """Return `token` as text, or None if it is not UTF-8 or contains a control character."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def values_of(line: bytes) -> list[float]:
    """Return the values of a valid line."""
    return [float(value) for value in _VALUE.findall(_content(line))]


def find_fault(line: bytes, rules: Rules, *, streams: bool = False) -> Fault:
    """Return the first fault of a faulty line; if `streams` is True, its remedy is for online training."""
    content = _content(line)
    fault = next(_faults(content, rules, _STORE_OF_SETS if streams else _SEVERAL_LABELS))
    if not rules.lists and _TABLE.fullmatch(content.rstrip()):
        problem = (
            "is not LIBSVM text: the line looks like a table, such as CSV, but should be "
            "`label index:value index:value ...`, with integer indices"
        )
        remedy = Remedy("if the file is a table, use {}", Option("format", "csv"))
        return fault._replace(problem=problem, remedy=remedy, skips=False)
    return fault


def _content(line: bytes) -> bytes:
    return line.removesuffix(b"\r").split(b"#")[0]


def _faults(line: bytes, rules: Rules, several_labels: Remedy) -> Iterator[Fault]:
    tokens = [(found.start(), found.group()) for found in _TOKEN.finditer(line)]
    start, first = tokens[0]
    if not (rules.lists and line[:1] in (b" ", b"\t")):
        del tokens[0]
        if b":" in first:
            blank = ", or with a space if it has no label" if rules.lists else ""
            yield Fault(start, first, f"has a colon, but a line must start with a label{blank}")
        if not rules.lists and b"," in first:
            yield Fault(start, first, "is a label with a comma", several_labels, skips=False)
        if not all(first.split(b",")):
            yield Fault(start, first, "has an empty label before or after a comma")
        if label_of(first) is None:
            yield Fault(start, first, "is a label that is not UTF-8 or contains a control character")
    previous, groups = -1, 0
    sums: dict[int, float] = {}
    dtype, remedy = "float64", None
    if math.isfinite(rules.too_large):
        dtype, remedy = "float32", Remedy("use {}", Option("dtype", "float64"))
    for at, token in tokens:
        if qid := _QID.fullmatch(token):
            groups += 1
            if rules.groups and groups > 1:
                yield Fault(at, token, "is the second qid in its row")
            if rules.groups and _whole(qid[2]) > (0 if qid[1] == b"-" else MAX_GROUP):
                yield Fault(at, token, f"is a qid outside 0..{MAX_GROUP}")
            continue
        pair = _PAIR.fullmatch(token)
        if pair is None:
            no_colon = "has no colon; index:value pairs follow the label"
            yield Fault(at, token, "has an index that is not an integer" if b":" in token else no_colon)
            return
        if not _NUMBER.fullmatch(pair[2]):
            yield Fault(at, token, "has a value that is not a finite decimal number")
            return
        index, value = _whole(pair[1]), float(pair[2])
        if index > MAX_INDEX:
            yield Fault(at, token, f"has an index above {MAX_INDEX}, the largest that a store can hold")
        if index < rules.lowest:
            problem = f"has index 0, but the indices of this input start at {rules.lowest}"
            yield Fault(at, token, problem, Remedy("check {}", Option("index_base")))
        if index == previous and not rules.fix:
            sums_them = Remedy("{} sums duplicates", Option("on_error", "fix"))
            yield Fault(at, token, "repeats the previous index", sums_them)
        if index < previous and not rules.fix:
            sorts = Remedy("{} sorts such rows", Option("on_error", "fix"))
            yield Fault(at, token, "has a lower index than the previous pair", sorts)
        if abs(value) >= rules.too_large:
            yield Fault(at, token, f"is too large for {dtype}", remedy)
        previous = index
        sums[index] = sums.get(index, 0.0) + value
    if rules.groups and not groups:
        yield Fault(start, first, "begins a row without qid:N, the number of its group")
    if max(map(abs, sums.values()), default=0.0) >= rules.too_large:
        yield Fault(
            start, first, f"begins a row whose sum of duplicates is too large for {dtype}; scale the data"
        )
    yield Fault(start, first, "begins a row whose squared norm overflows; scale the data")


def _whole(digits: bytes) -> int:
    """Return the integer with these digits, or a number above all limits if there are too many digits."""
    return int(digits.lstrip(b"0")[:20] or b"0")
