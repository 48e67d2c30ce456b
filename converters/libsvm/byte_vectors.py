"""Unaligned loads of 1, 8 or 32 bytes of text, for use in compiled code only.

Positions are not checked. At least `MARGIN` bytes of the array must follow each position.
"""

from __future__ import annotations

from typing import Any

import numba.extending
from llvmlite import ir
from numba.core import types

intrinsic: Any = numba.extending.intrinsic  # Any, because calls do not have the Python signature

SPAN = 32  # number of bytes tested by `non_digits` and `blanks`
MARGIN = SPAN + 8

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(ir.IntType(8), SPAN)


def _loaded(context, builder, signature, args, kind):
    """Generate code that loads a value of LLVM type `kind` from ``text[at]``, with any alignment."""
    text = context.make_array(signature.args[0])(context, builder, args[0])
    at = builder.gep(text.data, [context.cast(builder, args[1], signature.args[1], types.int64)])
    return builder.load(builder.bitcast(at, kind.as_pointer()), align=1)


@intrinsic
def load_byte(typing, text, at):
    """Return ``text[at]`` as an int64."""

    def generate(context, builder, signature, args):
        return builder.zext(_loaded(context, builder, signature, args, ir.IntType(8)), _I64)

    return types.int64(text, at), generate


@intrinsic
def load_word(typing, text, at):
    """Return ``text[at:at + 8]`` as a little-endian uint64."""

    def generate(context, builder, signature, args):
        return _loaded(context, builder, signature, args, _I64)

    return types.uint64(text, at), generate


def _mask(compare):
    """Return a code generator that sets bit i of a uint64 if ``compare`` holds for ``text[at + i]``."""

    def generate(context, builder, signature, args):
        block = _loaded(context, builder, signature, args, _BYTES)
        return builder.zext(builder.bitcast(compare(builder, block), _I32), _I64)

    return generate


def _all(byte):
    return ir.Constant(_BYTES, [byte] * SPAN)


@intrinsic
def non_digits(typing, text, at):
    """Return a uint64 whose bit i is set if ``text[at + i]`` is not a digit, for `SPAN` bytes."""

    def compare(builder, block):
        return builder.icmp_unsigned(">", builder.sub(block, _all(48)), _all(9))

    return types.uint64(text, at), _mask(compare)


@intrinsic
def blanks(typing, text, at):
    """Return a uint64 whose bit i is set if ``text[at + i]`` is at most 32 (a space), for `SPAN` bytes."""

    def compare(builder, block):
        return builder.icmp_unsigned("<=", block, _all(32))

    return types.uint64(text, at), _mask(compare)


@intrinsic
def first_bit(typing, mask):
    """Return the position of the lowest set bit of a uint64, or 64 if it is zero."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate
