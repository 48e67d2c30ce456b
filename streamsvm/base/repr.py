"""Text and HTML representations of results, models and stores for consoles and notebooks."""

from __future__ import annotations

import dataclasses
import html
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamsvm.base.text import printable, shortened

_MAX_ITEMS = 4  # maximum number of items shown of a list
_MAX_TEXT = 60  # maximum number of characters shown of a string


class Readable:
    """Mixin that adds a one-line repr and, for notebooks, an HTML table."""

    def _facts(self) -> dict[str, Any]:
        """Return the names and values to show, the most important first; None values are omitted."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def _more_html(self) -> str:
        """Return HTML to append to the table of facts."""
        return ""

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={_in_line(value)}" for name, value in _known(self._facts()))
        return f"{type(self).__name__}({facts})"

    def _repr_html_(self) -> str:
        rows = [[name.strip("_").replace("_", " "), value] for name, value in _known(self._facts())]
        return html_table(rows, title=type(self).__name__) + self._more_html()


def html_table(
    rows: Iterable[Sequence[Any]], *, title: str = "", headings: Sequence[str] = (), marked: int | None = None
) -> str:
    """Return an HTML table of escaped values; the row with index `marked` is bold."""
    parts = ["<table>"]
    if title:
        parts.append(f'<caption style="text-align: left"><b>{_escaped(title)}</b></caption>')
    if headings:
        parts.append("<tr>" + "".join(f"<th>{_escaped(each)}</th>" for each in headings) + "</tr>")
    for at, row in enumerate(rows):
        texts = [_escaped(_in_cell(value)) for value in row]
        if at == marked:
            texts = [f"<b>{text}</b>" for text in texts]
        cells = "".join(f'<td style="text-align: left">{text}</td>' for text in texts)
        parts.append(f"<tr>{cells}</tr>")
    return "".join([*parts, "</table>"])


def _known(facts: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in facts.items() if value is not None]


def _escaped(text: str) -> str:
    return html.escape(printable(text))


def _in_line(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_TEXT else shortened(value, _MAX_TEXT))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_in_line(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        shown = [_in_line(each) for each in value[:_MAX_ITEMS]] + ["..."] * (len(value) > _MAX_ITEMS)
        return f"[{', '.join(shown)}]"
    return str(value)


def _in_cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{str(name).replace('_', ' ')}: {_in_cell(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        shown = [_in_cell(each) for each in value[:_MAX_ITEMS]] + ["..."] * (len(value) > _MAX_ITEMS)
        return ", ".join(shown)
    return shortened(os.fspath(value), _MAX_TEXT) if isinstance(value, str | os.PathLike) else _in_line(value)
