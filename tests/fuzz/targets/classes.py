"""A file of classes for `--classes`, read as it is and by a few lines of plain Python."""

from __future__ import annotations

import typer
from fuzz.workplace import allowed, folder
from streamsvm_cli.online import parse_classes

from streamsvm.errors import InputError

MAX_BYTES = 300
TOKENS = (
    b"\n",
    b"\r\n",
    b"\t",
    b"\xef\xbb\xbf",
    b"\0",
    b"\x1c",
    b"\x85",
    b"\xc2\xa0",
    b"\xff",
    b"#",
    b",",
    b"1e3",
    b"+1",
)


def run(data: bytes) -> None:
    path = folder("classes") / "classes"
    path.write_bytes(data)
    text = data.removeprefix(b"\xef\xbb\xbf")
    for gap in (b"\n", b"\r", b"\t"):
        text = text.replace(gap, b" ")
    expected = [label for label in text.split(b" ") if label]
    found = None
    with allowed(InputError, typer.BadParameter):
        found = parse_classes(str(path))
    try:
        labels = [label.decode() for label in expected]
    except UnicodeDecodeError:
        assert found is None
        return
    if len(labels) < 2 or len(set(labels)) < len(labels):
        assert found is None
        return
    assert found is not None
    assert sorted(found) == sorted(labels)
    if all(label.isascii() and label.isdigit() for label in labels):
        assert list(map(int, found)) == sorted(map(int, found))


def seeds() -> list[bytes]:
    return [
        b"10\n9\n8\n",
        b"\xef\xbb\xbfspam\r\nham\r\n\r\neggs",
        "é\nß ä\t\u20ac".encode(),
        b"1\n1\n",
        b"",
        b"a\xa0b\nc\xc2\xa0d",
        b"-1\n+1\n1e3\n.5\n",
    ]
