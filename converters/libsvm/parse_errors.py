"""Messages about malformed lines, made from a fault code of the kernels and the text itself."""

from __future__ import annotations

import contextlib
import re

from streamsvm_converters.libsvm import lines

from streamsvm.base.text import CONTROL
from streamsvm.errors import Call, Message, Option, Remedy

_MAX_TOKEN = 40  # characters of an offending token that a message repeats
_PAIR = re.compile(rb"([^:]*):(.*)", re.DOTALL)
_REMEDIES = {
    lines.INDEX_LOW: Remedy("check {}", Option("index_base")),
    lines.UNSORTED: Remedy("{} sorts such rows", Option("on_error", "fix")),
    lines.DUPLICATE: Remedy("{} sums duplicates", Option("on_error", "fix")),
    lines.VALUE_LARGE: Remedy("try {}", Option("dtype", "float64")),
    lines.COMMA_IN_LABEL: Remedy("{} reads several labels a row", Option("multilabel", True)),
}
_PROBLEMS = {
    lines.INDEX_LOW: "has index 0, but indices start at 1 here",
    lines.UNSORTED: "has a lower index than the one before it",
    lines.DUPLICATE: "repeats the index before it",
    lines.VALUE_LARGE: "is too large for {dtype}",
    lines.SUM_LARGE: "is the label of a row whose duplicates sum to more than {dtype} can hold; scale the "
    "data",
    lines.NORM_LARGE: "is the label of a row whose squared norm overflows; scale the data",
    lines.COMMA_IN_LABEL: "is a label with a comma",
    lines.EMPTY_LABEL: "has an empty label beside a comma",
    lines.NO_GROUP: "is the label of a row without qid:, which names the group that each row belongs to",
    lines.TWO_GROUPS: "is a second qid of its row",
    lines.GROUP_RANGE: f"is a qid outside 0..{lines.MAX_GROUP}",
}
_STORE_OF_SETS = Remedy(
    "{} makes a store of rows with several labels", Call("convert", options=(Option("multilabel", True),))
)
_SKIP = Remedy("{} skips such rows", Option("on_error", "skip"))
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_WIDE_CONTROL = re.compile(f"[{CONTROL}]")
_VOWPAL_WABBIT = re.compile(rb"(^|[ \t])\|")
_TABLE = re.compile(rb"[^:]*[,;\t][^:]*")
_LAYOUT = "a line should be `label index:value index:value ...`, with integer indices"


def token_at(line: bytes, at: int) -> bytes:
    """Return the token of `line` that starts at `at`, without the carriage return of a CRLF."""
    return re.split(rb"[ \t\n#]|\r\n|\r\Z", line[at:], maxsplit=1)[0]


def show(token: bytes) -> str:
    """Return `token` quoted, on one line, and cut if it is long."""
    text = repr(token.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _MAX_TOKEN else f"{text[:_MAX_TOKEN]}..."


def explain(
    fault: int,
    line: bytes,
    at: int,
    dtype: str,
    on_error: str,
    *,
    one_label: bool = False,
    lists: bool = False,
) -> Message:
    """Return a message about the token at offset `at` of `line`, with the options that help.

    Parameters
    ----------
    fault : int
        One of the codes in `lines`, other than OK.
    line : bytes
    at : int
    dtype, on_error : str
        The options of the reader.
    one_label : bool
        Whether the reader has no option that reads several labels a row.
    lists : bool
        Whether rows may have several labels, or none.

    Returns
    -------
    Message
        Its remedy is None if no option helps, as with text in another format.
    """
    token = token_at(line, at)
    if fault in (lines.LABEL, lines.COMMA_IN_LABEL, lines.MALFORMED) and (other := _other_format(line)):
        remedy = Remedy("if it is one, give {}", Option("format", "csv")) if "table" in other else None
        return Message(f"{show(token)} is not LIBSVM text: {other}; {_LAYOUT}", remedy)
    hopeless = fault == lines.VALUE_LARGE and dtype == "float64"
    remedies = [_REMEDIES[fault]] if fault in _REMEDIES and not hopeless else []
    if fault == lines.COMMA_IN_LABEL:  # skipping such rows would leave a part that is not like the whole
        remedies = [_STORE_OF_SETS] if one_label else remedies
    elif on_error == "raise":
        remedies.append(_SKIP)
    if fault == lines.LABEL:
        problem = _label(token, lists)
    elif fault == lines.MALFORMED:
        problem = _malformed(token, line[at + len(token) :].lstrip(b" \t")[:1] == b":")
    else:
        problem = _PROBLEMS[fault].format(dtype=dtype)
    return Message(f"{show(token)} {problem}", Remedy.join(remedies) if remedies else None)


def _other_format(line: bytes) -> str:
    """Name another format that a malformed line looks like, or return the empty string."""
    line = line.split(b"#")[0]
    if _VOWPAL_WABBIT.search(line):
        return "the line looks like Vowpal Wabbit's format"
    if _TABLE.fullmatch(line) and not _CONTROL.search(line.rstrip(b"\r")):
        return "the line looks like a table, such as CSV"
    return ""


def is_label(text: bytes) -> bool:
    """Return True for UTF-8 without control characters."""
    try:
        return not _WIDE_CONTROL.search(text.decode())
    except UnicodeDecodeError:
        return False


def _label(token: bytes, lists: bool) -> str:
    if control := _CONTROL.search(token):
        return _control(control)
    if b":" in token:
        unlabelled = ", and one without a label begins with a blank" if lists else ""
        return f"is where the label should be; a line starts with its label{unlabelled}"
    with contextlib.suppress(UnicodeDecodeError):
        if found := _WIDE_CONTROL.search(token.decode()):
            return f"is a label with the control character U+{ord(found.group()):04X}; remove it"
    return "is a label that is not UTF-8; convert the file to UTF-8"


def _malformed(token: bytes, colon_follows: bool) -> str:
    if control := _CONTROL.search(token):
        return _control(control)
    pair = _PAIR.fullmatch(token)
    if pair is None:
        if colon_follows:
            return "is followed by a space before its colon; write index:value without spaces"
        return "has no colon; index:value pairs follow the label"
    index, value = pair.groups()
    if index == b"qid":
        return "is a qid that is not an integer"
    if not index:
        return "has no index before its colon"
    if re.fullmatch(rb"-\d+", index):
        return "has a negative index"
    if not re.fullmatch(rb"\d+", index):
        return "has an index that is not an integer"
    if len(index.lstrip(b"0")) > 19 or int(index[-19:]) > lines.MAX_INDEX:
        return f"has an index above {lines.MAX_INDEX}, the largest that a store can hold"
    if not value:
        return "has no value after its colon; write index:value without spaces"
    if value.lstrip(b"+-").lower() in (b"nan", b"inf", b"infinity"):
        return "has a value that is not finite; a linear model cannot use it"
    if b"," in value:
        return "has a value with a comma; write decimal points, and spaces between pairs"
    return "has a value that is not a decimal number"


def _control(found: re.Match[bytes]) -> str:
    byte = found.group()[0]
    hint = "end lines in newlines" if byte == 13 else "is this a text file, in UTF-8?"
    return f"contains the control byte 0x{byte:02x}; {hint}"
