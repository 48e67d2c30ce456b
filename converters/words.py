"""Wide looks at text in compiled code: 8 or 32 bytes at once, where a loop would take one.

For compiled code only. Positions are not checked: a caller has `MARGIN` bytes of the array before it.
"""

from __future__ import annotations

from typing import Any

import numba.extending
from llvmlite import ir
from numba.core import types

intrinsic: Any = numba.extending.intrinsic  # whose calls in compiled code type checkers take for Python's

SPAN = 32  # bytes that `non_digits` looks at
MARGIN = SPAN + 8  # bytes of the array that must follow wherever these functions look

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = ir.VectorType(ir.IntType(8), SPAN)


def _loaded(context, builder, signature, args, kind):
    """The `kind` that begins at ``text[at]``, wherever that lies."""
    text = context.make_array(signature.args[0])(context, builder, args[0])
    at = builder.gep(text.data, [context.cast(builder, args[1], signature.args[1], types.int64)])
    return builder.load(builder.bitcast(at, kind.as_pointer()), align=1)


@intrinsic
def load_word(typing, text, at):
    """The 8 bytes from ``text[at]`` on as a uint64, the first byte lowest."""

    def generate(context, builder, signature, args):
        return _loaded(context, builder, signature, args, _I64)

    return types.uint64(text, at), generate


@intrinsic
def non_digits(typing, text, at):
    """A uint32 whose bit i tells whether ``text[at + i]`` is something else than 0 to 9."""

    def generate(context, builder, signature, args):
        block = _loaded(context, builder, signature, args, _BYTES)
        zero, nine = (ir.Constant(_BYTES, [byte] * SPAN) for byte in (48, 9))
        other = builder.icmp_unsigned(">", builder.sub(block, zero), nine)
        return builder.bitcast(other, _I32)

    return types.uint32(text, at), generate


@intrinsic
def first_bit(typing, mask):
    """The number of the lowest bit set in a uint32, 32 if there is none."""

    def generate(context, builder, signature, args):
        count = builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))
        return builder.zext(count, _I64)

    return types.int64(types.uint32), generate
