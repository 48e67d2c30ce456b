"""Pictures of matplotlib as SVG inside an HTML page: its fonts and colours, light or dark."""

from __future__ import annotations

import contextlib
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from typing import Any

from streamsvm.errors import RunError
from streamsvm.reporting import drawing, html
from streamsvm.reporting.names import shown

_INK, _EDGE, _GRID = "#1f2328", "#8c959f", "#d1d9e0"
# The colours of pictures, by the variables of the page's style that take their place.
COLOURS = {
    _INK: "--ink",
    _EDGE: "--edge",
    _GRID: "--grid",
    drawing.GREY: "--muted",
    drawing.BLUE: "--blue",
    drawing.ORANGE: "--orange",
    drawing.GREEN: "--green",
}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # texts stay texts: to search, to copy, and in the font of the page
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10.0,
    "axes.labelsize": 10.0,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _EDGE,
    "ytick.color": _EDGE,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "axes.edgecolor": _EDGE,
    "grid.color": _GRID,
    "lines.linewidth": 1.8,
    "axes.unicode_minus": True,
    "text.usetex": False,
}
_WIDTH = 4.4  # inches: what a narrow screen shows without making the letters small
_FONT = re.compile(r"'DejaVu Sans'[^;]*")
_COLOUR = re.compile("|".join(COLOURS))


@contextlib.contextmanager
def page_style(name: str) -> Iterator[None]:
    """Draw in the style of the page; `name` makes the names in the SVG differ from those of others."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's own style is
        style: Any = {**_STYLE, "svg.hashsalt": name}
        matplotlib.rcParams.update(style)
        yield


def draw_svg(name: str, title: str, draw: Callable[[Any], object], *, height: float = 3.0) -> str:
    """The picture that `draw` makes in the axes it is given, as an SVG element.

    Parameters
    ----------
    name : str
        A word: all names within the picture begin with it.
    title : str
        Read by screen readers.
    height : float
        In inches, of 4.4 inches of width.
    """
    drawing.check_matplotlib()
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with page_style(name), drawing.no_glyph_warnings():
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        written = io.StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(written.getvalue(), name, title)


class Pictures:
    """Makes the pictures of one page, and numbers them."""

    def __init__(self) -> None:
        self._drawn = 0

    def card(
        self, title: str, draw: Callable[[Any], object], caption: str = "", *, height: float = 3.0
    ) -> list[str]:
        """A picture with its title in a list; the list is empty if the run has nothing to draw in it."""
        self._drawn += 1
        try:
            svg = draw_svg(f"picture{self._drawn}", shown(title), draw, height=height)
        except RunError:
            return []
        return [html.figure(title, svg, caption)]


def _for_page(text: str, name: str, title: str) -> str:
    """SVG without what only a file of its own needs, with colours and fonts of the page."""
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    for element in root.iter():
        element.tag = _local(element.tag)
        for key in list(element.attrib):
            value = element.attrib.pop(key)
            key = _local(key)
            if key == "id":
                if value not in used:
                    continue
                value = f"{name}-{value}"
            elif key in ("href", "clip-path"):
                value = value.replace("#", f"#{name}-", 1)
            elif key == "style":
                value = _FONT.sub("var(--font)", value)
                value = _COLOUR.sub(lambda found: f"var({COLOURS[found.group()]})", value)
            element.attrib[key] = value
    view = root.attrib["viewBox"]
    root.attrib.clear()
    root.attrib.update({"viewBox": view, "role": "img", "aria-label": title})
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=True)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
