"""SIMD vectors as a Numba type, with operators and functions for compiled code.

A loop that the compiler vectorises checks for overlapping arrays, has a scalar remainder loop, and keeps sums
in memory. With few classes, this costs more than the computation itself. Scores are computed in vectors of 64
bytes (16 float32 or 8 float64). A block step uses vectors of `LANES` classes, mostly in float64; LLVM splits
them among the registers. Python operators work lane by lane, and a number is repeated in all lanes, as in
``1.0 - margin * (own - scores)``. The functions do not check indices.
"""

from __future__ import annotations

import operator
from typing import Any

import numba.extending
from llvmlite import ir
from numba.core import types
from numba.extending import lower_builtin, models, register_model, type_callable

intrinsic: Any = numba.extending.intrinsic  # Any, because callers do not pass `typing`

VECTOR_BYTES = 64  # also the size of a cache line
LANES, LOG_LANES = 8, 3  # lanes of the vectors of a block step

_I64, _I32, _I1 = ir.IntType(64), ir.IntType(32), ir.IntType(1)


class Vector(types.Type):
    def __init__(self, element: Any, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(name=f"Vector({element}, {lanes})")


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, vector) -> None:
        super().__init__(manager, vector, _llvm(vector))


def _llvm(kind: Any) -> ir.Type:
    element = ir.FloatType() if getattr(kind, "element", kind) == types.float32 else ir.DoubleType()
    return ir.VectorType(element, kind.lanes) if isinstance(kind, Vector) else element


def _vector_type(array: Any) -> Vector:
    return Vector(array.dtype, 8 * VECTOR_BYTES // array.dtype.bitwidth)


def _splat(builder, value, lanes):
    kind = ir.VectorType(value.type, lanes)
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(_I32, 0))
    zeros = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
    return builder.shuffle_vector(first, ir.Constant(kind, ir.Undefined), zeros)


def _cast(context, builder, value, source, target):
    """Cast a number or vector to the type `target`; repeat a number in all lanes if `target` is a vector."""
    if isinstance(source, Vector):
        to, element = _llvm(target), source.element
        if element == target.element:
            return value
        return builder.fptrunc(value, to) if element == types.float64 else builder.fpext(value, to)
    if isinstance(target, Vector):
        return _splat(builder, context.cast(builder, value, source, target.element), target.lanes)
    return context.cast(builder, value, source, target)


def _cast_all(context, builder, values, source_types, target_type):
    return [_cast(context, builder, *pair, target_type) for pair in zip(values, source_types, strict=True)]


def _common(a: Any, b: Any) -> Any:
    """Return the common type of two numbers or vectors, or None for vectors of different types."""
    if isinstance(a, Vector):
        return a if not isinstance(b, Vector) or a == b else None
    return b if isinstance(b, Vector) else types.float64


def _define(op: Any, instruction: str) -> None:
    @type_callable(op)
    def typing(context):
        def type_of(a, b):
            return _common(a, b) if isinstance(a, Vector) or isinstance(b, Vector) else None

        return type_of

    def lower(context, builder, signature, args):
        values = _cast_all(context, builder, args, signature.args, signature.return_type)
        return getattr(builder, instruction)(*values)

    for types_ in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(op, *types_)(lower)


_define(operator.add, "fadd")
_define(operator.sub, "fsub")
_define(operator.mul, "fmul")
_define(operator.truediv, "fdiv")


def _pick(condition: str) -> Any:
    """Make a function of two numbers or vectors a and b that returns a where the condition holds, else b."""

    @intrinsic
    def function(typing, a, b):
        kind = _common(a, b)

        def generate(context, builder, signature, args):
            first, second = _cast_all(context, builder, args, signature.args, kind)
            return builder.select(builder.fcmp_ordered(condition, first, second), first, second)

        return kind(a, b), generate

    return function


minimum, maximum = _pick("<"), _pick(">")  # return the second operand if either is NaN


@intrinsic
def multiply_add(typing, a, b, c):
    """Return a b + c, in one instruction if the processor supports it; a and c may be numbers."""

    def generate(context, builder, signature, args):
        name, kind = f"llvm.fmuladd.v{b.lanes}f{b.element.bitwidth}", _llvm(b)
        values = _cast_all(context, builder, args, signature.args, b)
        return builder.call(_declared(builder, name, kind, [kind] * 3), values)

    return b(a, b, c), generate


@intrinsic
def log(typing, a):
    def generate(context, builder, signature, args):
        name = f"llvm.log.v{a.lanes}f{a.element.bitwidth}"
        return builder.call(_declared(builder, name, _llvm(a), [_llvm(a)]), args)

    return a(a), generate


@intrinsic
def cast(typing, a, array):
    """Convert a vector to the dtype of an array, by rounding or widening."""
    kind = Vector(array.dtype, a.lanes)
    return kind(a, array), lambda context, builder, signature, args: _cast(context, builder, args[0], a, kind)


@intrinsic
def zeros(typing):
    vector = Vector(types.float64, LANES)
    return vector(), lambda context, builder, signature, args: ir.Constant(_llvm(vector), [0.0] * LANES)


@intrinsic
def zeros_like(typing, array):
    """Return a vector of zeros, `VECTOR_BYTES` long, in the dtype of an array."""
    vector = _vector_type(array)
    zero = ir.Constant(_llvm(vector), [0.0] * vector.lanes)
    return vector(array), lambda context, builder, signature, args: zero


def _address(context, builder, signature, args, pointee):
    """Return a pointer to ``args[0][args[1]]``; the index is an integer, or a tuple of row and column."""
    array_type, kind = signature.args[:2]
    array = context.make_array(array_type)(context, builder, args[0])
    start, at = array.data, args[1]
    if isinstance(kind, types.BaseTuple):
        row, at = (
            context.cast(builder, builder.extract_value(args[1], i), index_type, types.int64)
            for i, index_type in enumerate(kind.types)  # type: ignore[attr-defined]
        )
        offset = builder.mul(row, builder.extract_value(array.strides, 0))
        start = builder.gep(builder.bitcast(start, ir.IntType(8).as_pointer()), [offset])
        start = builder.bitcast(start, array.data.type)
    else:
        at = context.cast(builder, at, kind, types.int64)
    return builder.bitcast(builder.gep(start, [at]), pointee.as_pointer())


def _align(array: Any) -> int:
    return array.dtype.bitwidth // 8


def _declared(builder, name, result, arguments):
    existing = builder.module.globals.get(name)
    return existing or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


@intrinsic
def lanes(typing, array):
    """Return the number of elements in a vector of the array's dtype, as a compile-time constant."""

    def generate(context, builder, signature, args):
        return ir.Constant(_I64, _vector_type(array).lanes)

    return types.int64(array), generate


@intrinsic
def item(typing, array, at):
    """Load ``array[at]`` without checking `at`, which must not be negative."""

    if array.layout != "C":
        return None  # Numba then raises a typing error

    def generate(context, builder, signature, args):
        pointee = context.get_data_type(array.dtype)
        value = builder.load(_address(context, builder, signature, args, pointee), align=_align(array))
        return context.data_model_manager[array.dtype].from_data(builder, value)

    return array.dtype(array, at), generate


def _load(array, vector):
    stored = Vector(array.dtype, vector.lanes)

    def generate(context, builder, signature, args):
        at = _address(context, builder, signature, args, _llvm(stored))
        return _cast(context, builder, builder.load(at, align=_align(array)), stored, vector)

    return generate


@intrinsic
def load(typing, array, at):
    vector = _vector_type(array)
    return vector(array, at), _load(array, vector)


@intrinsic
def load_like(typing, array, at, like):
    """Load a vector starting at ``array[at]``, with the length and precision of the vector `like`."""
    return like(array, at, like), _load(array, like)


@intrinsic
def store(typing, array, at, vector):
    """Write `vector`, rounded to the array's dtype, to the elements starting at ``array[at]``."""
    stored = Vector(array.dtype, vector.lanes)

    def generate(context, builder, signature, args):
        pointer = _address(context, builder, signature, args, _llvm(stored))
        builder.store(_cast(context, builder, args[2], vector, stored), pointer, align=_align(array))
        return context.get_dummy_value()

    return types.none(array, at, vector), generate


def _first_lanes(context, builder, count, count_type, lanes):
    lane = ir.Constant(ir.VectorType(_I64, lanes), list(range(lanes)))
    count = context.cast(builder, count, count_type, types.int64)
    return builder.icmp_signed("<", lane, _splat(builder, count, lanes))


def _load_first(array, vector):
    stored = Vector(array.dtype, vector.lanes)

    def generate(context, builder, signature, args):
        kind = _llvm(stored)
        pointer = _address(context, builder, signature, args, kind)
        mask = _first_lanes(context, builder, args[2], signature.args[2], stored.lanes)
        name = f"llvm.masked.load.v{stored.lanes}f{array.dtype.bitwidth}.p0"
        function = _declared(builder, name, kind, [pointer.type, _I32, mask.type, kind])
        zero = ir.Constant(kind, [0.0] * stored.lanes)
        values = builder.call(function, [pointer, ir.Constant(_I32, _align(array)), mask, zero])
        return _cast(context, builder, values, stored, vector)

    return generate


@intrinsic
def load_first(typing, array, at, count):
    """Like `load`, but read only the first `count` elements and set the other lanes to 0."""
    vector = _vector_type(array)
    return vector(array, at, count), _load_first(array, vector)


@intrinsic
def load_first_like(typing, array, at, count, like):
    """Like `load_like`, but read only the first `count` elements and set the other lanes to 0."""
    return like(array, at, count, like), _load_first(array, like)


@intrinsic
def store_first(typing, array, at, count, vector):
    """Write the first `count` elements of `vector` to `array`, which has the same dtype, starting at `at`."""

    def generate(context, builder, signature, args):
        kind = _llvm(vector)
        pointer = _address(context, builder, signature, args, kind)
        mask = _first_lanes(context, builder, args[2], signature.args[2], vector.lanes)
        name = f"llvm.masked.store.v{vector.lanes}f{array.dtype.bitwidth}.p0"
        function = _declared(builder, name, ir.VoidType(), [kind, pointer.type, _I32, mask.type])
        builder.call(function, [args[3], pointer, ir.Constant(_I32, _align(array)), mask])
        return context.get_dummy_value()

    return types.none(array, at, count, vector), generate


def _fold(builder, kind, vector, combine):
    n = kind.lanes
    while n > 1:
        n //= 2
        undefined = ir.Constant(vector.type, ir.Undefined)
        low, high = (
            builder.shuffle_vector(
                vector, undefined, ir.Constant(ir.VectorType(_I32, n), list(range(at, at + n)))
            )
            for at in (0, n)
        )
        vector = combine(low, high)
    return builder.extract_element(vector, ir.Constant(_I32, 0))


@intrinsic
def sum_lanes(typing, a):
    return a.element(a), lambda context, builder, signature, args: _fold(builder, a, args[0], builder.fadd)


@intrinsic
def max_lanes(typing, a):
    """Return the largest element; no element may be NaN."""

    def generate(context, builder, signature, args):
        def larger(x, y):
            return builder.select(builder.fcmp_ordered(">", x, y), x, y)

        return _fold(builder, a, args[0], larger)

    return a.element(a), generate


def _bits(condition: str) -> Any:
    """Make a function that compares the lanes of a with b and returns a mask, in which NaN counts as true."""

    @intrinsic
    def compare(typing, a, b):
        def generate(context, builder, signature, args):
            mask = builder.fcmp_unordered(condition, *_cast_all(context, builder, args, signature.args, a))
            return builder.zext(builder.bitcast(mask, ir.IntType(a.lanes)), _I64)

        return types.int64(a, b), generate

    return compare


above, not_below, differing = _bits(">"), _bits(">="), _bits("!=")


@intrinsic
def select(typing, bits, a, b):
    """Return a in the lanes that are set in the int64 mask `bits`, and b in the other lanes."""
    kind = _common(a, b)

    def generate(context, builder, signature, args):
        mask = builder.bitcast(builder.trunc(args[0], ir.IntType(kind.lanes)), ir.VectorType(_I1, kind.lanes))
        return builder.select(mask, *_cast_all(context, builder, args[1:], (a, b), kind))

    return kind(types.int64, a, b), generate


@intrinsic
def count_bits(typing, mask):
    return types.int64(mask), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def lowest_bit(typing, mask):
    """Return the index of the lowest set bit in `mask`, which must not be 0."""

    def generate(context, builder, signature, args):
        return builder.cttz(args[0], ir.Constant(_I1, 1))

    return types.int64(mask), generate


@intrinsic
def prefetch(typing, array, at):
    """Prefetch the cache line that contains ``array[at]``."""

    def generate(context, builder, signature, args):
        i8 = ir.IntType(8)
        function = _declared(
            builder, "llvm.prefetch.p0i8", ir.VoidType(), [i8.as_pointer(), _I32, _I32, _I32]
        )
        to_read, keep, data = (ir.Constant(_I32, n) for n in (0, 3, 1))
        builder.call(function, [_address(context, builder, signature, args, i8), to_read, keep, data])
        return context.get_dummy_value()

    return types.none(array, at), generate
