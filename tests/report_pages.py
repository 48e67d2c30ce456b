"""Reads the page of a report as a program that is none of ours: its texts, tables, and what it refers to."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_VOID = {"meta", "br", "hr", "img", "link", "input"}
_REFERS = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """A page, parsed: `texts` are those of all elements, and `tables` have the cells of their rows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.text = path.read_text()
        self.texts: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.tags: set[str] = set()
        self.pictures: list[str] = []  # what they are called
        self.ids: list[str] = []
        self.refers = re.findall(r"url\(([^)]*)\)", self.text) + re.findall(r"@import[^;]*", self.text)
        self.faults: list[str] = []  # elements that were not closed in their order
        self._open: list[str] = []
        self.feed(self.text)
        self.close()
        self.faults += [f"{tag} is not closed" for tag in self._open]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in _VOID:
            self._open.append(tag)
        found = {name: value or "" for name, value in attributes}
        self.ids += [found["id"]] if "id" in found else []
        self.refers += [value for name, value in found.items() if name in _REFERS]
        self.refers += [name for name in found if name.startswith("on")]  # these run programs
        if found.get("role") == "img":
            self.pictures.append(found["aria-label"])
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
            self.texts.append(" ".join(text.split()))
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += text

    def says(self, words: str) -> bool:
        return any(words in text for text in self.texts)

    def table(self, *heads: str) -> list[dict[str, str]]:
        """The rows of the one table that has these columns."""
        (found,) = [each for each in self.tables if set(heads) <= set(each[0])]
        return [dict(zip(found[0], row, strict=True)) for row in found[1:]]

    def check(self) -> None:
        """Assert that it is well-formed and stands alone."""
        assert self.text.startswith("<!DOCTYPE html>")
        assert self.faults == []
        assert {name[1:] for name in self.refers if name.startswith("#")} <= set(self.ids)
        assert [name for name in self.refers if not name.startswith("#")] == []
        assert len(self.ids) == len(set(self.ids))
        assert not self.tags & {"script", "link", "iframe", "object", "embed", "img", "image", "base", "form"}
