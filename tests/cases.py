"""Cases of a test that all runs try; .ci/nightly tries the others, too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def few(cases: Iterable[Any], *quick: Any) -> list[Any]:
    """The cases for `pytest.mark.parametrize`, of which all but the `quick` ones are marked `more`.

    Of cases that are tuples, `quick` may have the first element.
    """
    return [case if is_among(case, quick) else as_more(case) for case in cases]


def is_among(case: Any, quick: tuple[Any, ...]) -> bool:
    return case in quick or (isinstance(case, tuple) and case[0] in quick)


def as_more(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.more)
