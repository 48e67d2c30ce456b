"""Vectors of one cache line as values in compiled code: the hot loops are written in them.

A loop that the compiler vectorises by itself checks for overlapping arrays, adds a scalar remainder loop,
and keeps its sums in memory. With few classes that costs more than the work. Here vectors are explicit: a
`Vector` has 64 bytes, 16 float32 or 8 float64, and stays in a register. All functions are for compiled code
only; indices are not checked.
"""

from __future__ import annotations

from typing import Any

import numba.extending
from llvmlite import ir
from numba.core import types
from numba.extending import models, register_model

intrinsic: Any = numba.extending.intrinsic  # Any: its functions have other signatures in compiled code

VECTOR_BYTES = 64  # also the size of a cache line

_I64 = ir.IntType(64)


class Vector(types.Type):
    """The numba type of a vector."""

    def __init__(self, element: Any) -> None:
        self.element = element
        self.lanes = 8 * VECTOR_BYTES // element.bitwidth
        super().__init__(name=f"Vector({element})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector) -> None:
        super().__init__(manager, vector, _llvm(vector))


def _llvm(vector: Vector) -> ir.VectorType:
    element = ir.FloatType() if vector.element == types.float32 else ir.DoubleType()
    return ir.VectorType(element, vector.lanes)


def _address(context, builder, signature, args, pointee):
    """Pointer to ``array[at]`` or ``array[row, at]``, the leading arguments of a call."""
    array_type = signature.args[0]
    array = context.make_array(array_type)(context, builder, args[0])
    index = [
        context.cast(builder, arg, type_, types.int64)
        for arg, type_ in zip(args[1:], signature.args[1:], strict=False)
    ]
    start = array.data
    if array_type.ndim == 2:
        offset = builder.mul(index[0], builder.extract_value(array.strides, 0))
        start = builder.gep(builder.bitcast(start, ir.IntType(8).as_pointer()), [offset])
        start = builder.bitcast(start, array.data.type)
    at = builder.gep(start, [index[array_type.ndim - 1]])
    return builder.bitcast(at, pointee.as_pointer())


def _align(array: types.Array) -> int:
    return Vector(array.dtype).element.bitwidth // 8


def _declared(builder, name, result, arguments):
    """The LLVM function `name`, declared once per module."""
    known = builder.module.globals.get(name)
    return known or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic
def lanes(typing, array):
    """The number of elements in a vector of the array's dtype: a compile-time constant."""

    def generate(context, builder, signature, args):
        return ir.Constant(_I64, Vector(array.dtype).lanes)

    return types.int64(array), generate


@intrinsic
def log2_lanes(typing, array):
    """Base-2 logarithm of `lanes`: element c belongs to vector ``c >> log2_lanes(array)``."""

    def generate(context, builder, signature, args):
        return ir.Constant(_I64, Vector(array.dtype).lanes.bit_length() - 1)

    return types.int64(array), generate


@intrinsic
def splat(typing, value):
    """A vector whose elements all equal `value`."""
    vector = Vector(value)

    def generate(context, builder, signature, args):
        undefined = ir.Constant(_llvm(vector), ir.Undefined)
        first = builder.insert_element(undefined, args[0], ir.Constant(ir.IntType(32), 0))
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.lanes), [0] * vector.lanes)
        return builder.shuffle_vector(first, undefined, zeros)

    return vector(value), generate


def _load(array):
    vector = Vector(array.dtype)

    def generate(context, builder, signature, args):
        at = _address(context, builder, signature, args, _llvm(vector))
        return builder.load(at, align=_align(array))

    return vector, generate


def _store(array, vector):
    def generate(context, builder, signature, args):
        at = _address(context, builder, signature, args[:-1], _llvm(vector))
        builder.store(args[-1], at, align=_align(array))
        return context.get_dummy_value()

    return generate


@intrinsic
def load(typing, array, at):
    """The vector that begins at ``array[at]``."""
    vector, generate = _load(array)
    return vector(array, at), generate


@intrinsic
def load2(typing, array, row, at):
    """The vector that begins at ``array[row, at]``."""
    vector, generate = _load(array)
    return vector(array, row, at), generate


@intrinsic
def store(typing, array, at, vector):
    """Write `vector` to ``array[at:]``."""
    return types.none(array, at, vector), _store(array, vector)


@intrinsic
def store2(typing, array, row, at, vector):
    """Write `vector` to ``array[row, at:]``."""
    return types.none(array, row, at, vector), _store(array, vector)


def _mask(builder, vector, count):
    """Lanes below `count`."""
    integers = ir.VectorType(_I64, vector.lanes)
    undefined = ir.Constant(integers, ir.Undefined)
    first = builder.insert_element(undefined, count, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.lanes), [0] * vector.lanes)
    lane = ir.Constant(integers, list(range(vector.lanes)))
    return builder.icmp_signed("<", lane, builder.shuffle_vector(first, undefined, zeros))


@intrinsic
def load2_first(typing, array, row, at, count):
    """As `load2`, but only the first `count` elements are read; the others are 0."""
    vector = Vector(array.dtype)

    def generate(context, builder, signature, args):
        kind = _llvm(vector)
        pointer = _address(context, builder, signature, args[:-1], kind)
        mask = _mask(builder, vector, context.cast(builder, args[-1], signature.args[-1], types.int64))
        name = f"llvm.masked.load.v{vector.lanes}f{array.dtype.bitwidth}.p0"
        function = _declared(builder, name, kind, [pointer.type, ir.IntType(32), mask.type, kind])
        align = ir.Constant(ir.IntType(32), _align(array))
        return builder.call(function, [pointer, align, mask, ir.Constant(kind, [0.0] * vector.lanes)])

    return vector(array, row, at, count), generate


@intrinsic
def store_first(typing, array, at, vector, count):
    """Write the first `count` elements of `vector` to ``array[at:]``."""

    def generate(context, builder, signature, args):
        kind = _llvm(vector)
        pointer = _address(context, builder, signature, args[:2], kind)
        mask = _mask(builder, vector, context.cast(builder, args[-1], signature.args[-1], types.int64))
        name = f"llvm.masked.store.v{vector.lanes}f{array.dtype.bitwidth}.p0"
        function = _declared(builder, name, ir.VoidType(), [kind, pointer.type, ir.IntType(32), mask.type])
        builder.call(function, [args[2], pointer, ir.Constant(ir.IntType(32), _align(array)), mask])
        return context.get_dummy_value()

    return types.none(array, at, vector, count), generate


@intrinsic
def add(typing, a, b):
    """a + b."""
    return a(a, b), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def subtract(typing, a, b):
    """a - b."""
    return a(a, b), lambda context, builder, signature, args: builder.fsub(*args)


@intrinsic
def multiply(typing, a, b):
    """a b."""
    return a(a, b), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def minimum(typing, a, b):
    """The smaller of a and b, lane by lane; b where either is NaN."""

    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", *args), *args)

    return a(a, b), generate


@intrinsic
def maximum(typing, a, b):
    """The larger of a and b, lane by lane; b where either is NaN."""

    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), generate


def _fold(builder, kind, vector, combine):
    """Combine the elements of a vector by repeatedly combining its two halves."""
    n, i32 = kind.lanes, ir.IntType(32)
    while n > 1:
        n //= 2
        undefined = ir.Constant(vector.type, ir.Undefined)
        low, high = (
            builder.shuffle_vector(
                vector, undefined, ir.Constant(ir.VectorType(i32, n), list(range(at, at + n)))
            )
            for at in (0, n)
        )
        vector = combine(low, high)
    return builder.extract_element(vector, ir.Constant(i32, 0))


@intrinsic
def sum_lanes(typing, a):
    """The sum of the elements."""
    return a.element(a), lambda context, builder, signature, args: _fold(builder, a, args[0], builder.fadd)


@intrinsic
def max_lanes(typing, a):
    """The largest of the elements, of which none is NaN."""

    def generate(context, builder, signature, args):
        def larger(x, y):
            return builder.select(builder.fcmp_ordered(">", x, y), x, y)

        return _fold(builder, a, args[0], larger)

    return a.element(a), generate


@intrinsic
def multiply_add(typing, a, b, c):
    """The sum a b + c, in one instruction where the processor has it."""

    def generate(context, builder, signature, args):
        vector = _llvm(a)
        name = f"llvm.fmuladd.v{a.lanes}f{a.element.bitwidth}"
        return builder.call(_declared(builder, name, vector, [vector] * 3), args)

    return a(a, b, c), generate


@intrinsic
def above(typing, a, b):
    """An int64 whose bit j is set if a_j > b_j, or either is NaN."""

    def generate(context, builder, signature, args):
        mask = builder.bitcast(builder.fcmp_unordered(">", *args), ir.IntType(a.lanes))
        return builder.zext(mask, _I64)

    return types.int64(a, b), generate


@intrinsic
def not_below(typing, a, b):
    """An int64 whose bit j is set if a_j >= b_j, or either is NaN."""

    def generate(context, builder, signature, args):
        mask = builder.bitcast(builder.fcmp_unordered(">=", *args), ir.IntType(a.lanes))
        return builder.zext(mask, _I64)

    return types.int64(a, b), generate


@intrinsic
def count_bits(typing, mask):
    """The number of bits that are set in `mask`."""
    return types.int64(mask), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def lowest_bit(typing, mask):
    """The position of the lowest bit that is set in `mask`, which is not 0."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(mask), generate


@intrinsic
def prefetch(typing, array, at):
    """Start fetching the cache line of ``array[at]``."""

    def generate(context, builder, signature, args):
        i8, i32 = ir.IntType(8), ir.IntType(32)
        function = _declared(builder, "llvm.prefetch.p0i8", ir.VoidType(), [i8.as_pointer(), i32, i32, i32])
        to_read, keep, data = (ir.Constant(i32, n) for n in (0, 3, 1))
        builder.call(function, [_address(context, builder, signature, args, i8), to_read, keep, data])
        return context.get_dummy_value()

    return types.none(array, at), generate
