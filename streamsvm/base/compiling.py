"""Who is to be told that functions are compiled, which takes some seconds the first time on a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LINE = "compiling kernels; this happens once on a machine"

_listeners: list[Callable[[str], None]] = []


@contextmanager
def told_of_compiling(say: Callable[[str], None]) -> Iterator[None]:
    """Have a function called with a line for people, once, if anything is compiled meanwhile."""
    if say in _listeners:  # of a function that called this one
        yield
        return
    _listeners.append(say)
    try:
        yield
    finally:
        with suppress(ValueError):  # it was told
            _listeners.remove(say)


def tell() -> None:
    """Tell all who listen, before something is compiled; a stream that is full or closed does not stop it."""
    for say in _listeners.copy():
        try:
            _listeners.remove(say)
        except ValueError:  # another thread tells it
            continue
        with suppress(OSError, ValueError):
            say(LINE)
