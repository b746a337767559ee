"""Loads and stores of vectors: storage formats, partial vectors, strided columns."""

from __future__ import annotations

from kerasish.backends.static.machine.assembly import (
    STORED,
    Value,
    Writer,
    constant,
    llvm_type,
)
from kerasish.backends.static.machine.assembly import (
    computed as computed,
)
from kerasish.backends.static.machine.assembly import (
    lane_numbers as lane_numbers,
)

_LEAST_ROUNDED, _MOST_ROUNDED = 8, 16  # lanes that one instruction rounds to bfloat16
_DENORMAL = 0x20  # denormal numbers, a bit of vfpclassps

# The register type of stored elements before they are converted.
_RAW = {"float16": "uint16", "bfloat16": "uint16", "bool": "uint8"}


def raw_dtype(dtype: str) -> str:
    return _RAW.get(dtype, dtype)


def from_storage(w: Writer, raw: Value, dtype: str) -> Value:
    """Stored bits converted to the dtype of computation."""
    if dtype == "bool":
        return w.compare("ne", raw, w.like(raw, 0))
    if dtype == "bfloat16":
        if w.target.bfloat16 and raw.lanes > _MOST_ROUNDED:
            return _spread(w, raw)
        return w.bitcast(w.shift_left(w.convert("zext", raw, "uint32"), 16), "float32")
    if dtype == "float16":
        if w.target.half_conversions:
            return w.convert("fpext", w.bitcast(raw, "float16"), "float32")
        return _half_to_single(w, raw)
    return raw


def _spread(w: Writer, raw: Value) -> Value:
    """Return bfloat16 as float32: one permutation for each vector of results."""
    zeros, parts = w.like(raw, 0), []
    for first in range(0, raw.lanes, _MOST_ROUNDED):
        numbers = range(first, first + _MOST_ROUNDED)
        order = [k for number in numbers for k in (raw.lanes, number)]
        words = w.shuffle(raw, zeros, order)
        text = f"bitcast {words.typed} to <{_MOST_ROUNDED} x float>"
        parts.append(w.let(text, "float32", _MOST_ROUNDED))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [w.shuffle(a, b, range(2 * a.lanes)) for a, b in pairs]
    return parts[0]


def to_storage(w: Writer, value: Value, dtype: str) -> Value:
    """Values converted to the bits to store; 16-bit floats round to nearest, ties to even."""
    if dtype == "bool":
        return w.convert("zext", value, "uint8")
    if dtype == "bfloat16":
        if w.target.bfloat16 and value.lanes >= _LEAST_ROUNDED:
            return _rounded(w, value)
        return _rounded_bits(w, value)
    if dtype == "float16":
        if w.target.half_conversions:
            return w.bitcast(w.convert("fptrunc", value, "float16"), "uint16")
        return _single_to_half(w, value)
    return value


def _rounded_bits(w: Writer, value: Value) -> Value:
    """Return float32 values as bfloat16, by integer instructions."""
    bits = w.bitcast(value, "uint32")
    odd = w.bits_and(w.shift_right(bits, 16), w.like(bits, 1))
    rounded = w.add(bits, w.add(odd, w.like(bits, 0x7FFF)))
    quiet = w.bits_or(bits, w.like(bits, 0x400000))
    chosen = w.select(w.compare("uno", value, value), quiet, rounded)
    return w.convert("trunc", w.shift_right(chosen, 16), "uint16")


def _rounded(w: Writer, value: Value) -> Value:
    """Return float32 values as bfloat16: by instructions if none is denormal.

    The instructions return 0 for denormal values.
    """
    parts = [value]
    while parts[0].lanes > _MOST_ROUNDED:
        parts = [half for part in parts for half in w.halve(part)]
    denormal = constant(0, "bool", parts[0].lanes)
    for part in parts:
        denormal = w.bits_or(denormal, _is_denormal(w, part))
    lanes = denormal.lanes
    some = w.let(f"bitcast {denormal.typed} to i{lanes}", "uint16" if lanes == 16 else "uint8")

    def by_instructions() -> list[Value]:
        if len(parts) > 1:
            results = [_rounded_pair(w, *pair) for pair in zip(parts[::2], parts[1::2])]
        else:
            results = [_rounded_part(w, part) for part in parts]
        while len(results) > 1:
            pairs = zip(results[::2], results[1::2], strict=True)
            results = [w.shuffle(a, b, range(2 * a.lanes)) for a, b in pairs]
        return results

    none = w.compare("eq", some, w.like(some, 0))
    return w.branch(none, by_instructions, lambda: [_rounded_bits(w, value)])[0]


def _rounded_part(w: Writer, value: Value) -> Value:
    lanes = value.lanes
    symbol = f"@llvm.x86.avx512bf16.cvtneps2bf16.{32 * lanes}"
    w.declared.add(f"declare <{lanes} x bfloat> {symbol}({value.llvm})")
    raw = w.let(f"call <{lanes} x bfloat> {symbol}({value.typed})", "bfloat16", lanes)
    return w.let(f"bitcast <{lanes} x bfloat> {raw.text} to <{lanes} x i16>", "uint16", lanes)


def _rounded_pair(w: Writer, low: Value, high: Value) -> Value:
    lanes = 2 * low.lanes
    symbol = f"@llvm.x86.avx512bf16.cvtne2ps2bf16.{16 * lanes}"
    w.declared.add(f"declare <{lanes} x bfloat> {symbol}({low.llvm}, {low.llvm})")
    text = f"call <{lanes} x bfloat> {symbol}({high.typed}, {low.typed})"
    raw = w.let(text, "bfloat16", lanes)
    return w.let(f"bitcast <{lanes} x bfloat> {raw.text} to <{lanes} x i16>", "uint16", lanes)


def _is_denormal(w: Writer, value: Value) -> Value:
    symbol = f"@llvm.x86.avx512.fpclass.ps.{32 * value.lanes}"
    w.declared.add(f"declare <{value.lanes} x i1> {symbol}({value.llvm}, i32)")
    text = f"call <{value.lanes} x i1> {symbol}({value.typed}, i32 {_DENORMAL})"
    return w.let(text, "bool", value.lanes)


def _half_to_single(w: Writer, raw: Value) -> Value:
    h = w.convert("zext", raw, "uint32")
    sign = w.shift_left(w.bits_and(h, w.like(h, 0x8000)), 16)
    rest = w.bits_and(h, w.like(h, 0x7FFF))
    shifted = w.bitcast(w.shift_left(rest, 13), "float32")
    bits = w.bitcast(w.mul(shifted, w.like(shifted, 2.0**112)), "uint32")
    endless = w.compare("uge", rest, w.like(rest, 0x7C00))
    bits = w.select(endless, w.bits_or(bits, w.like(bits, 0x7F800000)), bits)
    return w.bitcast(w.bits_or(bits, sign), "float32")


def _single_to_half(w: Writer, value: Value) -> Value:
    bits = w.bitcast(value, "uint32")
    rest = w.bits_and(bits, w.like(bits, 0x7FFFFFFF))
    sign = w.shift_right(w.bits_and(bits, w.like(bits, 0x80000000)), 16)
    odd = w.bits_and(w.shift_right(rest, 13), w.like(rest, 1))
    moved = w.add(w.add(rest, w.like(rest, 0xC8000FFF)), odd)
    normal = w.shift_right(moved, 13)
    single = w.bitcast(rest, "float32")
    small = w.bitcast(w.add(single, w.like(single, 0.5)), "uint32")
    small = w.sub(small, w.like(small, 0x3F000000))
    half = w.select(w.compare("ult", rest, w.like(rest, 0x38800000)), small, normal)
    half = w.select(w.compare("uge", rest, w.like(rest, 0x477FF000)), w.like(half, 0x7C00), half)
    half = w.select(w.compare("ugt", rest, w.like(rest, 0x7F800000)), w.like(half, 0x7E00), half)
    return w.convert("trunc", w.bits_or(half, sign), "uint16")


def tail_mask(w: Writer, count: Value, lanes: int) -> Value:
    """Lanes 0 .. count-1 as an i1 vector."""
    small = w.convert("trunc", count, "int32")
    return w.compare("slt", lane_numbers("int32", lanes), w.splat(small, lanes))


def load_full(w: Writer, address: Value, dtype: str, lanes: int) -> Value:
    raw = raw_dtype(dtype)
    return Value(w.load(address, llvm_type(raw, lanes), STORED[dtype][1]), raw, lanes)


def store_full(w: Writer, value: Value, address: Value, dtype: str) -> None:
    w.store_value(value, address, STORED[dtype][1])


def _mangled(w: Writer, name: str, raw: Value) -> str:
    kind = {"float32": "f32", "float64": "f64"}.get(raw.dtype, llvm_type(raw.dtype))
    return f"@{name}.v{raw.lanes}{kind}.p0"


def load_tail(
    w: Writer, address: Value, dtype: str, lanes: int, count: Value, mask: Value
) -> Value:
    """Load the first `count` lanes, zeros in the others; reads nothing beyond."""
    raw = raw_dtype(dtype)
    size = STORED[dtype][1]
    if not w.target.masks(size):
        return load_lanes(w, address, dtype, lanes, count, None)
    zeros = constant(0, raw, lanes)
    symbol = _mangled(w, "llvm.masked.load", zeros)
    w.declared.add(f"declare {zeros.llvm} {symbol}(ptr, i32, {mask.llvm}, {zeros.llvm})")
    return w.let(
        f"call {zeros.llvm} {symbol}(ptr {address.text}, i32 {size}, {mask.typed}, {zeros.typed})",
        raw,
        lanes,
    )


def store_tail(
    w: Writer, value: Value, address: Value, dtype: str, count: Value, mask: Value
) -> None:
    """Store the first `count` lanes."""
    size = STORED[dtype][1]
    if count.text == "1":
        # LLVM converts a masked store with a one-lane mask to a plain store and ignores that the
        # value is truncated: it would write the 4 bytes of the integer that bfloat16 is part of.
        w.store_value(w.extract(value, 0), address, size)
        return
    if not w.target.masks(size):
        store_lanes(w, value, address, dtype, count, None)
        return
    symbol = _mangled(w, "llvm.masked.store", value)
    w.declared.add(f"declare void {symbol}({value.llvm}, ptr, i32, {mask.llvm})")
    w.do(f"call void {symbol}({value.typed}, ptr {address.text}, i32 {size}, {mask.typed})")


def load_lanes(
    w: Writer, address: Value, dtype: str, lanes: int, count: Value, stride: Value | None
) -> Value:
    """`count` lanes one by one, `stride` elements apart."""
    raw, size = raw_dtype(dtype), STORED[dtype][1]
    buffer = w.allocate(llvm_type(raw), lanes)
    w.store_value(constant(0, raw, lanes), buffer, size)

    def one(i: Value, _: list[Value]) -> list[Value]:
        at = w.address(address, i if stride is None else w.mul(i, stride), size)
        item = Value(w.load(at, llvm_type(raw), size), raw)
        w.store_value(item, w.address(buffer, i, size), size)
        return []

    w.loop(constant(0, "int64"), count, 1, [], one)
    return load_full(w, buffer, dtype, lanes)


def load_apart(w: Writer, address: Value, dtype: str, lanes: int, stride: Value) -> Value:
    """Load all lanes, `stride` elements apart."""
    raw, size = raw_dtype(dtype), STORED[dtype][1]
    result = constant(0, raw, lanes)
    offset = constant(0, "int64")
    for lane in range(lanes):
        at = w.address(address, offset, size)
        result = w.insert(result, Value(w.load(at, llvm_type(raw), size), raw), lane)
        offset = stride if lane == 0 else w.add(offset, stride)
    return result


def store_apart(w: Writer, value: Value, address: Value, dtype: str, stride: Value) -> None:
    """Store all lanes, `stride` elements apart."""
    size = STORED[dtype][1]
    offset = constant(0, "int64")
    for lane in range(value.lanes):
        w.store_value(w.extract(value, lane), w.address(address, offset, size), size)
        offset = stride if lane == 0 else w.add(offset, stride)


def store_lanes(
    w: Writer, value: Value, address: Value, dtype: str, count: Value, stride: Value | None
) -> None:
    """`count` lanes one by one, `stride` elements apart."""
    size = STORED[dtype][1]
    buffer = w.allocate(llvm_type(value.dtype), value.lanes)
    w.store_value(value, buffer, size)

    def one(i: Value, _: list[Value]) -> list[Value]:
        item = Value(w.load(w.address(buffer, i, size), llvm_type(value.dtype), size), value.dtype)
        at = w.address(address, i if stride is None else w.mul(i, stride), size)
        w.store_value(item, at, size)
        return []

    w.loop(constant(0, "int64"), count, 1, [], one)


def load_one(w: Writer, address: Value, dtype: str) -> Value:
    """Load one element, converted to the dtype of computation."""
    return from_storage(w, load_full(w, address, dtype, 1), dtype)


def store_one(w: Writer, value: Value, address: Value, dtype: str) -> None:
    store_full(w, to_storage(w, value, dtype), address, dtype)


def computed_size(dtype: str) -> int:
    """Bytes of a computed value in scratch memory (a bool takes one byte)."""
    return STORED[computed(dtype)][1]
