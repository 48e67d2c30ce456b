"""The features with the largest coefficients of some classes, in words."""

from __future__ import annotations

from collections.abc import Sequence

from streamsvm.model import Model
from streamsvm.strongest import strongest_features


def top_features(model: Model, codes: Sequence[int], n: int = 10) -> list[list[tuple[str, float]]]:
    """What `strongest_features` finds of the classes with these codes; numbers become "feature 7"."""
    return [
        [
            (feature if isinstance(feature, str) else f"feature {feature}", weight)
            for feature, weight in strongest_features(model, n, slice(code, code + 1))[0]
        ]
        for code in codes
    ]
