"""Parts of an HTML page. Everything that comes from data is escaped here, and nowhere else."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamsvm.reporting.names import shown

_LIGHT = {
    "page": "#ffffff", "card": "#f6f8fa", "ink": "#1f2328", "muted": "#59636e", "edge": "#8c959f",
    "grid": "#d1d9e0", "blue": "#0067a5", "orange": "#b84a00", "green": "#00785a", "note": "#fff8c5",
}  # fmt: skip
_DARK = {
    "page": "#0d1117", "card": "#161b22", "ink": "#e6edf3", "muted": "#9198a1", "edge": "#6e7681",
    "grid": "#30363d", "blue": "#6cb6ff", "orange": "#f0965a", "green": "#4fcfa6", "note": "#3a2f0b",
}  # fmt: skip


_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing is loaded from anywhere


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


STYLE = f"""
:root {{ color-scheme: light dark;
  --font: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  {_variables(_LIGHT)} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(_DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 var(--font); }}
main {{ max-width: 1240px; margin: 0 auto; padding: 20px 16px 48px; }}
h1 {{ font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }}
h2 {{ font-size: 19px; margin: 36px 0 12px; }}
h3 {{ font-size: 15px; margin: 0 0 6px; overflow-wrap: anywhere; }}
p {{ margin: 4px 0 10px; max-width: 78ch; overflow-wrap: anywhere; }}
.muted, .caption {{ color: var(--muted); }}
.caption {{ margin: 14px 0 0; font-size: 14px; }}
.note {{ background: var(--note); border-radius: 6px; padding: 8px 12px; }}
.facts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(140px, 1fr)); gap: 10px;
  margin: 16px 0; }}
.facts div {{ background: var(--card); border-radius: 8px; padding: 10px 12px; }}
.facts b {{ display: block; font-size: 20px; line-height: 1.3; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }}
.facts span {{ color: var(--muted); font-size: 13px; }}
.cards {{ display: grid; gap: 14px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 340px), 1fr)); }}
figure {{ margin: 0; background: var(--card); border-radius: 8px; padding: 12px; min-width: 0;
  break-inside: avoid; }}
figcaption {{ color: var(--muted); font-size: 13px; margin-top: 6px; overflow-wrap: anywhere; }}
svg {{ display: block; width: 100%; max-width: 520px; height: auto; }}
svg * {{ stroke-linejoin: round; stroke-linecap: butt; }}
.scroll {{ overflow-x: auto; margin: 4px 0 14px; }}
table {{ border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }}
th, td {{ text-align: right; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }}
th {{ font-weight: 600; }}
th.text, td.text {{ text-align: left; }}
table.pairs {{ width: 100%; }}
table.pairs th {{ text-align: left; vertical-align: top; font-weight: 400; color: var(--muted);
  width: 11em; }}
table.pairs td {{ text-align: left; white-space: normal; overflow-wrap: anywhere; }}
@media (max-width: 520px) {{ table.pairs th {{ width: 8em; white-space: normal; }} }}
@media print {{ body {{ font-size: 12px; }} .scroll {{ overflow: visible; }} h2 {{ break-after: avoid; }}
  .cards {{ grid-template-columns: 1fr 1fr; }} tr {{ break-inside: avoid; }} main {{ padding: 0; }} }}
"""


def escaped(value: object, most: int = 400) -> str:
    """A text from data: on one line, of bounded length, escaped."""
    return html.escape(shown(value, most))


def page(title: str, body: Iterable[str]) -> str:
    """A whole page; nothing in it is loaded from elsewhere, and the policy in its head forbids it."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escaped(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def heading(text: str) -> str:
    return f"<h2>{escaped(text)}</h2>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{escaped(text, 2000)}</p>"


def facts(values: Mapping[str, str]) -> str:
    """A few figures in large letters, by their names."""
    boxes = (
        f"<div><b>{escaped(value)}</b><span>{escaped(name)}</span></div>" for name, value in values.items()
    )
    return f'<div class="facts">{"".join(boxes)}</div>'


def figure(title: str, svg: str, caption: str = "") -> str:
    """A picture, which must be SVG of our own, with texts around it."""
    below = f"<figcaption>{escaped(caption, 1000)}</figcaption>" if caption else ""
    return f"<figure><h3>{escaped(title)}</h3>{svg}{below}</figure>"


def cards(figures: Sequence[str]) -> str:
    return f'<div class="cards">{"".join(figures)}</div>' if figures else ""


def table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, texts: int = 0, caption: str = ""
) -> str:
    """A table, of which the first `texts` columns are texts and the others numbers."""
    kinds = [_class("text" if at < texts else "") for at in range(len(heads))]
    head = "".join(
        f'<th{kind} scope="col">{escaped(each)}</th>' for kind, each in zip(kinds, heads, strict=True)
    )
    lines = "\n".join(
        "<tr>"
        + "".join(f"<td{kind}>{escaped(each)}</td>" for kind, each in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    above = f'<p class="caption">{escaped(caption, 1000)}</p>' if caption else ""  # outside of what scrolls
    return (
        f'{above}<div class="scroll"><table><thead><tr>{head}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>"
    )


def pairs(values: Mapping[str, Any]) -> str:
    """A table of names and values."""
    rows = (
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value, 2000)}</td></tr>'
        for name, value in values.items()
    )
    return f'<table class="pairs"><tbody>{"".join(rows)}</tbody></table>'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
