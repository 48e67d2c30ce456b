"""Decode JSON records into dataclasses, with errors that name the invalid entry.

Stores and models may come from untrusted sources, so values are converted in only three cases: a list
may become a tuple, an int may become a float, and the keys of an object may become integers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import reprlib
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, Union


class SchemaError(ValueError):
    """Raised for an invalid record; the message names the entry and what was expected."""


class Check(NamedTuple):
    """Condition on a value, for ``Annotated[type, Check(...)]``."""

    holds: Callable[[Any], bool]
    expected: str  # completes the sentence "it must be ..."


def between(low: float, high: float) -> Check:
    """Return a check that a number is in the closed interval [`low`, `high`]."""
    return Check(lambda value: low <= value <= high, f"in [{low:,}, {high:,}]")


Count = Annotated[int, between(0, 2**62)]  # leaves headroom below the limit of int64


def decode(kind: Any, value: Any, where: str = "") -> Any:
    """Convert a JSON value to an instance of `kind`.

    `value` is a result of ``json.loads``, and `where` names it in error messages. `kind` is a dataclass or
    named tuple; ``int`` (within 64 bits), ``float`` (finite), ``bool``, ``str`` or ``Any``; or a ``list``,
    ``dict``, ``tuple``, ``Literal``, union (including None) or ``Annotated`` of these types, with any number
    of `Check` conditions. Unknown entries of a record are ignored; missing entries get their defaults.

    Raises `SchemaError` if a value has the wrong type or fails a check, if an entry without a default is
    missing, or if the dataclass itself raises `ValueError`.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin is Annotated:
        result = decode(arguments[0], value, where)
        for check in arguments[1:]:
            _require(check.holds(result), where, check.expected, value)
        return result
    if origin in (Union, types.UnionType):
        return _decode_union(arguments, value, where)
    if origin is Literal:
        is_one = any(type(value) is type(choice) and value == choice for choice in arguments)
        _require(is_one, where, f"one of {arguments}", value)
        return value
    if _fields(kind) is not None:
        return _decode_record(kind, value, where)
    if origin in (list, tuple):
        return _decode_items(kind, value, where)
    if origin is dict:
        _require(type(value) is dict, where, "an object", value)
        key_type = arguments[0]
        are_keys = key_type is str or all(map(str.isdecimal, value))
        _require(are_keys, where, "an object with whole numbers as keys", value)
        return {
            key_type(key): decode(arguments[1], item, f"{where}[{key!r:.40}]") for key, item in value.items()
        }
    return _decode_scalar(kind, value, where)


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float:
        _require(type(value) in (int, float), where, "a number", value)
        _require(abs(value) < 2.0**1023 and math.isfinite(value), where, "finite", value)
        return float(value)
    _require(type(value) is kind, where, f"of type {kind.__name__}", value)
    _require(kind is not int or -(2**63) <= value < 2**63, where, "within 64 bits", value)
    return value


def _decode_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    choices = [kind for kind in kinds if kind is not type(None)]
    if value is None and len(choices) < len(kinds):
        return None
    for kind in choices[:-1]:
        with contextlib.suppress(SchemaError):
            return decode(kind, value, where)
    return decode(choices[-1], value, where)


def _decode_items(kind: Any, value: Any, where: str) -> Any:
    _require(type(value) is list, where, "a list", value)
    kinds = typing.get_args(kind)
    if typing.get_origin(kind) is list or kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    _require(len(kinds) == len(value), where, f"a list of {len(kinds)} items", value)
    items = [
        decode(each, item, f"{where}[{i}]") for i, (each, item) in enumerate(zip(kinds, value, strict=True))
    ]
    return typing.get_origin(kind)(items)


def _decode_record(kind: Any, value: Any, where: str) -> Any:
    _require(type(value) is dict, where, "an object", value)
    entries = {}
    for name, (hint, optional) in (_fields(kind) or {}).items():
        path = f"{where}.{name}" if where else name
        if name in value:
            entries[name] = decode(hint, value[name], path)
        elif not optional:
            raise SchemaError(f"{path} is missing")
    try:
        return kind(**entries)
    except ValueError as error:  # from __post_init__
        raise SchemaError(f"{where or 'the record'}: {error}") from None


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]] | None:
    """Return the type of each field and whether it has a default; None for types without fields."""
    if not (dataclasses.is_dataclass(kind) or hasattr(kind, "_field_defaults")):
        return None
    hints, parameters = typing.get_type_hints(kind, include_extras=True), inspect.signature(kind).parameters
    return {name: (hints[name], each.default is not each.empty) for name, each in parameters.items()}


def _require(holds: bool, where: str, expected: str, value: Any) -> None:
    if not holds:
        raise SchemaError(f"{where or 'the record'} must be {expected}, not {reprlib.repr(value)}")


def encode(value: Any) -> Any:
    """Convert a dataclass, recursively, to types that `json.dumps` accepts; `decode` is the inverse."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    value = value._asdict() if hasattr(value, "_asdict") else value
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value
