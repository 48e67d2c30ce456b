"""What is wrong with a line, in words: from the kernels' fault code and the text itself."""

from __future__ import annotations

import contextlib
import re

from streamsvm_converters import kernels

from streamsvm.text import CONTROL

NO_LIBSVM = "is no LIBSVM text"
_SHOWN = 40  # characters of an offending token that a message repeats
_PAIR = re.compile(rb"([^:]*):(.*)", re.DOTALL)
_OPTIONS = {
    kernels.INDEX_LOW: ", as --index-base or --like says",
    kernels.UNSORTED: "; --on-error fix sorts such rows",
    kernels.DUPLICATE: "; --on-error fix sums duplicates",
    kernels.VALUE_LARGE: "; try --dtype float64",
}
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_WIDE_CONTROL = re.compile(f"[{CONTROL}]")
_VOWPAL_WABBIT = re.compile(rb"(^|[ \t])\|")
_TABLE = re.compile(rb"[^:]*[,;\t][^:]*")
_LAYOUT = "here a line is `label index:value index:value ...`, with whole numbers as indices"


def token_at(line: bytes, at: int) -> bytes:
    """The token of `line` that starts at `at`; the carriage return of a CRLF belongs to none."""
    return re.split(rb"[ \t\n#]|\r\n|\r\Z", line[at:], maxsplit=1)[0]


def show(token: bytes) -> str:
    """`token` quoted, on one line, cut where it grows long."""
    text = repr(token.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def explain(fault: int, line: bytes, at: int, dtype: str, options: bool) -> str:
    """What is wrong with the token at offset `at` of `line`, and what to do about it: by `options` too."""
    token = token_at(line, at)
    if fault in (kernels.LABEL, kernels.MALFORMED) and (other := _other_format(line)):
        return f"{show(token)} {NO_LIBSVM}: {other}; {_LAYOUT}"
    hopeless = fault == kernels.VALUE_LARGE and dtype == "float64"
    hint = _OPTIONS.get(fault, "") if options and not hopeless else ""
    return f"{show(token)} {_words(fault, token, line, at, dtype)}{hint}"


def _other_format(line: bytes) -> str:
    """What kind of text a line that cannot be read looks like, if that is plain to see."""
    line = line.split(b"#")[0]
    if _VOWPAL_WABBIT.search(line):
        return "the line looks like Vowpal Wabbit's format"
    if _TABLE.fullmatch(line) and not _CONTROL.search(line.rstrip(b"\r")):
        return "the line looks like a table, such as CSV"
    return ""


def _words(fault: int, token: bytes, line: bytes, at: int, dtype: str) -> str:
    match fault:
        case kernels.LABEL:
            return _label(token)
        case kernels.INDEX_LOW:
            return "has index 0, but indices start at 1 here"
        case kernels.UNSORTED:
            return "has a lower index than the one before it"
        case kernels.DUPLICATE:
            return "repeats the index before it"
        case kernels.VALUE_LARGE:
            return f"is too large for {dtype}"
        case kernels.SUM_LARGE:
            return f"labels a row whose duplicates sum to more than {dtype} holds; scale the data"
        case kernels.NORM_LARGE:
            return "labels a row whose squared norm overflows; scale the data"
        case _:
            return _malformed(token, line[at + len(token) :].lstrip(b" \t")[:1] == b":")


def _label(token: bytes) -> str:
    if control := _CONTROL.search(token):
        return _control(control)
    if b":" in token:
        return "stands where the label should be; a line starts with its label"
    if b"," in token:
        return "is a label with a comma; several labels a row are not supported"
    with contextlib.suppress(UnicodeDecodeError):
        if found := _WIDE_CONTROL.search(token.decode()):
            return f"is a label with the control character U+{ord(found.group()):04X}; write it without"
    return "is a label that is not UTF-8; convert the file to UTF-8"


def _malformed(token: bytes, colon_follows: bool) -> str:
    if control := _CONTROL.search(token):
        return _control(control)
    pair = _PAIR.fullmatch(token)
    if pair is None:
        if colon_follows:
            return "is followed by a space before its colon; write index:value without spaces"
        return "has no colon; after the label a line has index:value pairs"
    index, value = pair.groups()
    if index == b"qid":
        return "is a qid that is not an integer"
    if not index:
        return "has no index before its colon"
    if re.fullmatch(rb"-\d+", index):
        return "has a negative index"
    if not re.fullmatch(rb"\d+", index):
        return "has an index that is not an integer"
    if len(index.lstrip(b"0")) > 19 or int(index[-19:]) > kernels.MAX_INDEX:
        return f"has an index above {kernels.MAX_INDEX}, the largest that a store can hold"
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
