"""Reads the page of a report as a program that is none of ours: its texts, tables, and what it refers to."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "br", "hr", "img", "link", "input"}
_REFERS = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """A page, parsed.

    Attributes
    ----------
    texts : list of str
        Of all elements, unescaped.
    tables : list of list of list of str
        The cells of each table, row by row, with its heading.
    tags : set of str
    pictures : list of str
        What the pictures are called.
    ids : list of str
    local : list of str
        Names within the page that are referred to.
    outside : list of str
        What the page refers to besides, and attributes that run programs.
    faults : list of str
        Elements that were not closed in their order.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text()
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.tags: set[str] = set()
        self.pictures: list[str] = []
        self.ids: list[str] = []
        self.local: list[str] = []
        self.outside: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(self.text)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self._open]
        for url in re.findall(r"url\(([^)]*)\)", self.text):
            (self.local if url.startswith("#") else self.outside).append(url)
        self.outside += re.findall(r"@import[^;]*", self.text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in _VOID:
            self._open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name.startswith("on"):
                self.outside.append(name)
            if name in _REFERS:
                (self.local if (value or "").startswith("#") else self.outside).append(value or "")
            if tag == "svg" and name == "aria-label":
                self.pictures.append(value or "")
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}>")

    def handle_data(self, text: str) -> None:
        if self._open and self._open[-1] == "style":
            return
        if text.strip():
            self.texts.append(text.strip())
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += text

    def table(self, *heads: str) -> list[dict[str, str]]:
        """The rows of the one table that has these columns."""
        (found,) = [each for each in self.tables if set(heads) <= set(each[0])]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]

    def check(self) -> None:
        """Assert that it is well-formed and stands alone."""
        assert self.text.startswith("<!DOCTYPE html>")
        assert self.faults == []
        assert self.outside == []
        assert len(self.ids) == len(set(self.ids))
        assert {name.removeprefix("#") for name in self.local} == set(self.ids)
        assert not self.tags & {"script", "link", "iframe", "object", "embed", "img", "base", "form"}
