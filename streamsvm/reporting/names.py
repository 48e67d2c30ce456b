"""Names from the data, made fit to be drawn and written: one line, of bounded length."""

from __future__ import annotations

import re

from streamsvm.text import printable

_NOT_IN_XML = re.compile("[\ufffe\uffff]")  # of those that `printable` leaves


def shown(name: object, most: int = 60) -> str:
    """`name` on one line of at most `most` characters, of which the last may stand for those left out.

    Control characters are escaped, as are surrogates; the result has no character that XML forbids. It is
    not escaped for HTML.
    """
    text = _NOT_IN_XML.sub("\ufffd", printable(str(name)))
    return text if len(text) <= most else f"{text[: most - 1]}…"
