"""How pictures are drawn: colours, curves that are named at their ends, bars, and ticks as plain numbers."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamsvm.errors import StreamsvmError
from streamsvm.reporting.names import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Dark enough to read text in them on white, and told apart by colour-blind people; the report has lighter
# ones for a dark background.
BLUE, ORANGE, GREEN, GREY = "#0067a5", "#b84a00", "#00785a", "#6e7781"
_MOST_POINTS = 300  # of a curve
_MOST_MARKERS = 30
_GAP = 12.5  # points between the base lines of two labels

Plot = TypeVar("Plot", bound=Callable[..., Any])


def check_matplotlib() -> None:
    """Raise `StreamsvmError` unless matplotlib can be imported."""
    try:
        import matplotlib.axes  # noqa: F401
    except ImportError:
        raise StreamsvmError(
            "pictures are drawn by matplotlib, which is not installed: pip install 'streamsvm[plot]'"
        ) from None


@contextmanager
def no_glyph_warnings() -> Iterator[None]:
    """Without a warning for characters that matplotlib's font lacks: in SVG other fonts show them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def needs_matplotlib(function: Plot) -> Plot:
    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        check_matplotlib()
        with no_glyph_warnings():
            return function(*arguments, **options)

    return wrapped  # type: ignore[return-value]


class Curve:
    """A series, thinned to what a picture can show; its last point stays."""

    def __init__(
        self, name: str, xy: tuple[Sequence[float], Sequence[float]], colour: str, style: str
    ) -> None:
        self.name, self.colour, self.style = name, colour, style
        n = len(xy[0])
        kept = (
            np.unique(np.linspace(0, n - 1, _MOST_POINTS).round().astype(int))
            if n > _MOST_POINTS
            else range(n)
        )
        self.x, self.y = ([values[i] for i in kept] for values in xy)

    def renamed(self, name: str) -> Curve:
        return Curve(name, (self.x, self.y), self.colour, self.style)

    def above_zero(self) -> Curve:
        """Only the points that a log scale can show."""
        kept = [(x, y) for x, y in zip(self.x, self.y, strict=True) if y > 0]
        return Curve(self.name, ([x for x, _ in kept], [y for _, y in kept]), self.colour, self.style)


def axes_or_new(ax: Axes | None) -> Axes:
    if ax is None:
        import matplotlib.pyplot

        _, ax = matplotlib.pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(visible=True, axis="y", linewidth=0.6, alpha=0.6)
    ax.set_axisbelow(True)
    return ax


def draw_curves(ax: Axes, curves: Sequence[Curve]) -> list[tuple[str, float, str]]:
    """Draw curves, and return the labels of their ends, if they have points."""
    ends = []
    for curve in curves:
        if curve.x:
            marker = "o" if len(curve.x) <= _MOST_MARKERS else ""
            ax.plot(
                curve.x, curve.y, marker=marker, markersize=4, color=curve.colour, linestyle=curve.style
            )  # fmt: skip
            ends.append((curve.name, curve.y[-1], curve.colour))
    return ends


def label_ends(ax: Axes, ends: Sequence[tuple[str, float, str]]) -> None:
    """Name curves at the right of the axes, at the heights of their ends but apart from one another."""
    ends = sorted((end for end in ends if end[0]), key=lambda end: end[1])
    ax.autoscale_view()
    to_points = 72.0 / ax.figure.dpi
    heights = [float(ax.transData.transform((1.0, y))[1]) * to_points for _, y, _ in ends]
    places = _spread_out(heights, [_GAP * (1 + name.count("\n")) for name, _, _ in ends])
    for (name, y, colour), height, place in zip(ends, heights, places, strict=True):
        ax.annotate(
            name, (1.0, y), xycoords=ax.get_yaxis_transform(), xytext=(5, place - height),
            textcoords="offset points", va="center", color=colour, annotation_clip=False, parse_math=False,
        )  # fmt: skip


def _spread_out(heights: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Places for labels of these sizes, near increasing heights, so that none covers another one.

    Labels that would overlap stand together, around the mean of their heights.
    """
    groups: list[tuple[float, list[int]]] = []  # where a group begins, and its labels
    for at in range(len(heights)):
        members = [at]
        while True:
            size = sum(sizes[i] for i in members)
            begin = sum(heights[i] for i in members) / len(members) - size / 2
            if not groups or groups[-1][0] + sum(sizes[i] for i in groups[-1][1]) <= begin:
                break
            members = groups.pop()[1] + members
        groups.append((begin, members))
    places = []
    for begin, members in groups:
        for i in members:
            places.append(begin + sizes[i] / 2)
            begin += sizes[i]
    return places


def label_dots(ax: Axes, dots: Sequence[tuple[float, float, str]]) -> None:
    """Name dots beside them, unless a name would cover another one."""
    ax.autoscale_view()
    taken: list[tuple[float, float, float]] = []
    to_points = 72.0 / ax.figure.dpi
    for x, y, name in dots:
        text = shown(name, 16)
        left, height = (float(value) * to_points for value in ax.transData.transform((x, y)))
        right = left + 6.0 * len(text) + 5
        if any(left < r and right > l and abs(height - h) < _GAP for l, r, h in taken):
            continue
        taken.append((left, right, height))
        ax.annotate(
            text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", parse_math=False
        )  # fmt: skip


def draw_bars(ax: Axes, names: Sequence[str], values: np.ndarray, texts: Sequence[str], colour: str) -> Axes:
    """Draw horizontal bars, the first one on top, with texts at their ends."""
    places = np.arange(len(names))
    ax.barh(places, values, color=colour, height=0.65)
    ax.set_yticks(places, names, parse_math=False)
    ax.invert_yaxis()
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.spines["left"].set_visible(False)
    for place, value, text in zip(places, values, texts, strict=True):
        ax.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center")
    ax.set_xlim(0, float(np.max(values)) * 1.02)
    ax.locator_params(axis="x", nbins=4)
    return ax


def whole_numbers(ax: Axes) -> None:
    """Ticks of the horizontal axis at whole numbers from 1 on."""
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, min_n_ticks=1))
    ax.set_xlim(left=max(ax.get_xlim()[0], 0.5))


def plain_log(axis: Any) -> None:
    """Ticks of a log scale as numbers, since exponents are small print."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    low, high = sorted(axis.get_view_interval())
    if high < 8 * low:
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,), numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short_number(value)))
    axis.set_minor_formatter(NullFormatter())


def _short_number(value: float) -> str:
    for unit, name in ((1e9, " bn"), (1e6, " M"), (1e3, " k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def as_percent(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))
