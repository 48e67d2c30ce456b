"""Pictures of `streamsvm.plot` as SVG inside a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from streamsvm.errors import ModelError, RunError

_WIDTH = 4.4  # inches: what a narrow screen shows without making the letters small
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# Texts stay texts: to search, to copy, and in any script, which the fonts of the browser have.
_STYLE: Any = {"svg.fonttype": "none", "legend.framealpha": 0.6, "lines.linewidth": 1.8}


class Pictures:
    """Drawer of the pictures of one page, whose SVG names differ from picture to picture."""

    def __init__(self) -> None:
        self._drawn = 0

    def draw(
        self, title: str, function: Callable[..., Any], *arguments: Any, height: float = 3.0, **options: Any
    ) -> dict[str, Any] | None:
        """Let a function of `streamsvm.plot` draw; return title and SVG, or None if it has no data."""
        import matplotlib
        from markupsafe import Markup
        from matplotlib.figure import Figure

        self._drawn += 1
        with matplotlib.rc_context(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)  # the browser has them
            matplotlib.rcdefaults()  # whatever the user's own style is
            matplotlib.rcParams.update(_STYLE)
            matplotlib.rcParams["svg.hashsalt"] = f"picture{self._drawn}"
            figure = Figure(figsize=(_WIDTH, height), layout="constrained")
            try:
                function(*arguments, ax=figure.add_subplot(), **options)
            except (RunError, ModelError):
                return None
            written = io.StringIO()
            figure.savefig(written, format="svg", transparent=True, metadata=_NO_METADATA)
        svg = written.getvalue()
        svg = re.sub('<g id="[^"]*"', "<g", svg[svg.index("<svg") :])  # these are the same in all pictures
        return {"title": title, "svg": Markup(svg)}
