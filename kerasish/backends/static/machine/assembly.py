"""LLVM IR as text: typed values, a writer with loops and branches, and the target processor.

Writing text is 5 to 10 times faster than llvmlite's builder objects, and needs no import. A `Value`
is an SSA name with a dtype and a number of lanes (1 = scalar); a method of `Writer` writes one or a
few instructions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

STORED = {
    "float32": ("float", 4),
    "float64": ("double", 8),
    "float16": ("half", 2),
    "bfloat16": ("i16", 2),
    "bool": ("i8", 1),
    "int8": ("i8", 1),
    "uint8": ("i8", 1),
    "int16": ("i16", 2),
    "uint16": ("i16", 2),
    "int32": ("i32", 4),
    "uint32": ("i32", 4),
    "int64": ("i64", 8),
    "uint64": ("i64", 8),
}
COMPUTED = {"float16": "float32", "bfloat16": "float32"}
FLOATS = ("float16", "bfloat16", "float32", "float64")


def computed(dtype: str) -> str:
    """The dtype of computation for values stored as `dtype` (float32 for 16-bit floats)."""
    return COMPUTED.get(dtype, dtype)


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_signed(dtype: str) -> bool:
    return dtype.startswith("int")


class Value(NamedTuple):
    """An SSA name (or a literal), its dtype and its lanes. Pointers have dtype "ptr"."""

    text: str
    dtype: str
    lanes: int = 1

    @property
    def llvm(self) -> str:
        return llvm_type(self.dtype, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.llvm} {self.text}"


_SCALARS = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "bool": "i1",
    "ptr": "ptr",
    "int8": "i8",
    "uint8": "i8",
    "int16": "i16",
    "uint16": "i16",
    "int32": "i32",
    "uint32": "i32",
    "int64": "i64",
    "uint64": "i64",
}


def llvm_type(dtype: str, lanes: int = 1) -> str:
    """LLVM's name of a register type."""
    scalar = _SCALARS[dtype]
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def _double_bits(number: float) -> str:
    bits = struct.unpack("<Q", struct.pack("<d", number))[0]
    return f"0x{bits:016X}"


def literal(value: float, dtype: str) -> str:
    """A constant in LLVM's notation; floats as the bits of a double, rounded to `dtype` first."""
    if dtype == "float32":
        number = float(value)
        if number == number and abs(number) != float("inf"):
            try:
                number = struct.unpack("<f", struct.pack("<f", number))[0]
            except OverflowError:
                number = float("inf") if number > 0 else float("-inf")
        return _double_bits(number)
    if dtype == "float64":
        return _double_bits(float(value))
    if dtype == "bool":
        return "true" if value else "false"
    return str(int(value))


def constant(value: float, dtype: str, lanes: int = 1) -> Value:
    """A constant in every lane."""
    one = literal(value, dtype)
    if lanes == 1:
        return Value(one, dtype)
    item = f"{_SCALARS[dtype]} {one}"
    return Value("<" + ", ".join([item] * lanes) + ">", dtype, lanes)


def lane_numbers(dtype: str, lanes: int) -> Value:
    """The constant vector 0, 1, 2, ..."""
    if lanes == 1:
        return constant(0, dtype)
    scalar = _SCALARS[dtype]
    return Value("<" + ", ".join(f"{scalar} {i}" for i in range(lanes)) + ">", dtype, lanes)


class Target(NamedTuple):
    """The processor that code is generated for.

    Args:
        level: "avx512", "avx2", "sse" (x86-64-v4, -v3, -v2) or "generic" (another architecture).
        cpu: LLVM's name of the processor. features: LLVM's feature string.
        triple: LLVM's target triple; "" is the process's own.
    """

    level: str
    cpu: str
    features: str = ""
    triple: str = ""

    @property
    def lanes(self) -> int:
        """float32 lanes in a native register."""
        return {"avx512": 16, "avx2": 8}.get(self.level, 4)

    @property
    def half_conversions(self) -> bool:
        return self.level in ("avx512", "avx2", "generic")

    @property
    def bfloat16(self) -> bool:
        """Whether there are instructions that round to bfloat16 and multiply pairs of it."""
        return "+avx512bf16" in self.features

    def masks(self, size: int) -> bool:
        """Whether loads and stores of `size`-byte elements can be masked in hardware."""
        return self.level == "avx512" or (self.level == "avx2" and size >= 4)


Lines = list[str]


class Writer:
    """Writes one function's instructions; `body()` returns the text."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.lines: Lines = []
        self.allocations: Lines = []
        self.count = self.loops = 0
        self.block = "entry"
        self.declared: set[str] = set()
        self.table = Value("%table", "ptr")

    # --- names, raw lines -------------------------------------------------------------------
    def fresh(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str, dtype: str, lanes: int = 1) -> Value:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return Value(name, dtype, lanes)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        self.do(f"br label %{name}")

    def allocate(self, llvm: str, count: int, align: int = 64) -> Value:
        """A buffer on the stack, allocated once at the function's entry."""
        self.count += 1
        name = f"%s{self.count}"
        self.allocations.append(f"  {name} = alloca [{count} x {llvm}], align {align}")
        return Value(name, "ptr")

    def body(self) -> str:
        return "\n".join(["entry:", *self.allocations, *self.lines])

    # --- arithmetic --------------------------------------------------------------------------
    def two(self, instruction: str, a: Value, b: Value, dtype: str | None = None) -> Value:
        return self.let(f"{instruction} {a.typed}, {b.text}", dtype or a.dtype, a.lanes)

    def like(self, x: Value, number: float) -> Value:
        return constant(number, x.dtype, x.lanes)

    def add(self, a: Value, b: Value) -> Value:
        return self.two("fadd" if is_float(a.dtype) else "add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.two("fsub" if is_float(a.dtype) else "sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.two("fmul" if is_float(a.dtype) else "mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.two("fdiv", a, b)

    def bits_and(self, a: Value, b: Value) -> Value:
        return self.two("and", a, b)

    def bits_or(self, a: Value, b: Value) -> Value:
        return self.two("or", a, b)

    def bits_xor(self, a: Value, b: Value) -> Value:
        return self.two("xor", a, b)

    def shift_left(self, a: Value, count: int) -> Value:
        return self.two("shl", a, self.like(a, count))

    def shift_right(self, a: Value, count: int) -> Value:
        return self.two("lshr", a, self.like(a, count))

    def negative(self, a: Value) -> Value:
        if is_float(a.dtype):
            return self.let(f"fneg {a.typed}", a.dtype, a.lanes)
        return self.sub(self.like(a, 0), a)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, contracted if the processor can."""
        return self.call("llvm.fmuladd", a, b, c)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """A float predicate (olt, uno, ...) or an integer one (slt, ult, eq, ...)."""
        kind = "fcmp" if is_float(a.dtype) else "icmp"
        return self.let(f"{kind} {predicate} {a.typed}, {b.text}", "bool", a.lanes)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        return self.let(f"select {condition.typed}, {a.typed}, {b.typed}", a.dtype, a.lanes)

    def convert(self, instruction: str, a: Value, dtype: str) -> Value:
        """One of LLVM's conversions; no instruction if the register type stays the same."""
        to = llvm_type(dtype, a.lanes)
        if to == a.llvm:
            return Value(a.text, dtype, a.lanes)
        return self.let(f"{instruction} {a.typed} to {to}", dtype, a.lanes)

    def bitcast(self, a: Value, dtype: str) -> Value:
        return self.convert("bitcast", a, dtype)

    def call(self, name: str, *args: Value) -> Value:
        """An LLVM intrinsic overloaded on its first argument's type."""
        first = args[0]
        suffix = {"float32": "f32", "float64": "f64", "float16": "f16", "bool": "i1"}.get(
            first.dtype, _SCALARS[first.dtype]
        )
        if first.lanes > 1:
            suffix = f"v{first.lanes}{suffix}"
        symbol = f"@{name}.{suffix}"
        types = ", ".join(a.llvm for a in args)
        self.declared.add(f"declare {first.llvm} {symbol}({types})")
        text = f"call {first.llvm} {symbol}({', '.join(a.typed for a in args)})"
        return self.let(text, first.dtype, first.lanes)

    # --- lanes ---------------------------------------------------------------------------------
    def splat(self, a: Value, lanes: int) -> Value:
        if lanes == 1 or a.lanes == lanes:
            return a
        if not a.text.startswith("%"):
            item = f"{_SCALARS[a.dtype]} {a.text}"
            return Value("<" + ", ".join([item] * lanes) + ">", a.dtype, lanes)
        vector = llvm_type(a.dtype, lanes)
        first = self.let(f"insertelement {vector} poison, {a.typed}, i32 0", a.dtype, lanes)
        text = f"shufflevector {vector} {first.text}, {vector} poison, <{lanes} x i32> "
        return self.let(f"{text}zeroinitializer", a.dtype, lanes)

    def shuffle(self, a: Value, b: Value | None, order: Sequence[int]) -> Value:
        mask = ", ".join(f"i32 {i}" for i in order)
        second = b.text if b is not None else "poison"
        text = f"shufflevector {a.typed}, {a.llvm} {second}, <{len(order)} x i32> <{mask}>"
        return self.let(text, a.dtype, len(order))

    def extract(self, a: Value, lane: int | Value) -> Value:
        if a.lanes == 1:
            return a
        where = f"i32 {lane}" if isinstance(lane, int) else lane.typed
        return self.let(f"extractelement {a.typed}, {where}", a.dtype)

    def insert(self, a: Value, item: Value, lane: int) -> Value:
        if a.lanes == 1:
            return item
        return self.let(f"insertelement {a.typed}, {item.typed}, i32 {lane}", a.dtype, a.lanes)

    def halve(self, a: Value) -> tuple[Value, Value]:
        """The low and the high half of the lanes."""
        half = a.lanes // 2
        if half == 1:
            return self.extract(a, 0), self.extract(a, 1)
        return self.shuffle(a, None, range(half)), self.shuffle(a, None, range(half, a.lanes))

    def fold(self, a: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """All lanes combined in a fixed tree."""
        while a.lanes > 1:
            a = combine(*self.halve(a))
        return a

    # --- memory --------------------------------------------------------------------------------
    def address(self, base: Value, index: Value, size: int) -> Value:
        """base + index * size bytes."""
        if index.text == "0":
            return base
        kind = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}[size]
        return self.let(f"getelementptr {kind}, ptr {base.text}, {index.typed}", "ptr")

    def load(self, address: Value, llvm: str, align: int) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = load {llvm}, ptr {address.text}, align {align}")
        return name

    def load_word(self, args: Value, position: int, dtype: str = "int64") -> Value:
        """Word `position` of a record's argument block."""
        at = self.let(f"getelementptr i64, ptr {args.text}, i64 {position}", "ptr")
        return Value(self.load(at, llvm_type(dtype), 8), dtype)

    def load_value(self, address: Value, dtype: str, lanes: int = 1) -> Value:
        align = 4 if dtype in ("float32", "int32", "uint32") else 8
        return Value(self.load(address, llvm_type(dtype, lanes), align), dtype, lanes)

    def store_value(self, value: Value, address: Value, align: int = 4) -> None:
        self.do(f"store {value.typed}, ptr {address.text}, align {align}")

    def prefetch(self, address: Value, level: int = 1) -> None:
        """Prefetch the cache line of an address, which need not be memory of the process.

        Args:
            level: the cache it is loaded into.
        """
        self.declared.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.do(f"call void @llvm.prefetch.p0(ptr {address.text}, i32 0, i32 {4 - level}, i32 1)")

    # --- control -------------------------------------------------------------------------------
    def loop(
        self,
        start: Value,
        stop: Value,
        step: int,
        carried: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """for i in range(start, stop, step), with carried values; returns their last state.

        If the body contains loops, it gets i by an instruction that LLVM's loop strength reduction
        does not look through: with many addresses that pass takes as long as all others together,
        and it pays only for innermost loops.
        """
        name = self.fresh("l")
        loops = self.loops = self.loops + 1
        before = self.block
        self.jump(f"{name}.head")
        self.label(f"{name}.head")
        index = Value(f"%{name}.i", "int64")
        phis = [Value(f"%{name}.c{n}", c.dtype, c.lanes) for n, c in enumerate(carried)]
        place = len(self.lines)
        more = self.compare("slt", index, stop)
        self.do(f"br i1 {more.text}, label %{name}.body, label %{name}.exit")
        self.label(f"{name}.body")
        place_of_i = len(self.lines)
        i = self.bits_xor(index, constant(0, "int64"))
        result = list(body(i, list(phis)))
        if self.loops == loops:  # no loop inside
            self.lines[place_of_i] = f"  {i.text} = add i64 {index.text}, 0"
        following = self.add(index, constant(step, "int64"))
        latch = self.block
        self.jump(f"{name}.head")
        heads = [
            f"  {index.text} = phi i64 [ {start.text}, %{before} ], [ {following.text}, %{latch} ]"
        ]
        heads += [
            f"  {p.text} = phi {p.llvm} [ {c.text}, %{before} ], [ {r.text}, %{latch} ]"
            for p, c, r in zip(phis, carried, result, strict=True)
        ]
        self.lines[place:place] = heads
        self.label(f"{name}.exit")
        return phis

    def repeat(
        self,
        carried: Sequence[Value],
        more: Callable[[list[Value]], Value],
        body: Callable[[list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """while more(carried): carried = body(carried); returns their last state.

        Args:
            more: returns one boolean, not one for each lane.
        """
        name = self.fresh("r")
        before = self.block
        self.jump(f"{name}.head")
        self.label(f"{name}.head")
        phis = [Value(f"%{name}.c{n}", c.dtype, c.lanes) for n, c in enumerate(carried)]
        place = len(self.lines)
        going = more(list(phis))
        self.do(f"br i1 {going.text}, label %{name}.body, label %{name}.exit")
        self.label(f"{name}.body")
        result = list(body(list(phis)))
        latch = self.block
        self.jump(f"{name}.head")
        self.lines[place:place] = [
            f"  {p.text} = phi {p.llvm} [ {c.text}, %{before} ], [ {r.text}, %{latch} ]"
            for p, c, r in zip(phis, carried, result, strict=True)
        ]
        self.label(f"{name}.exit")
        return phis

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]] = tuple,
    ) -> list[Value]:
        """if / else; the values of both sides are joined."""
        name = self.fresh("b")
        self.do(f"br i1 {condition.text}, label %{name}.then, label %{name}.else")
        self.label(f"{name}.then")
        first = list(then())
        end_then = self.block
        self.jump(f"{name}.end")
        self.label(f"{name}.else")
        second = list(otherwise())
        end_else = self.block
        self.jump(f"{name}.end")
        self.label(f"{name}.end")
        joined = []
        for a, b in zip(first, second, strict=True):
            text = f"phi {a.llvm} [ {a.text}, %{end_then} ], [ {b.text}, %{end_else} ]"
            joined.append(self.let(text, a.dtype, a.lanes))
        return joined


def words_of(block: str, *words: str) -> str:
    """Return the LLVM IR that reads the 64-bit words of a block of memory, in order.

    Args:
        block: the name of the pointer to the block.
        words: type and name of each word, "i64 count"; "address count" is the
            address of the word.
    """
    lines = []
    for number, word in enumerate(words):
        kind, name = word.split()
        at = name if kind == "address" else f"{name}.word"
        lines.append(f"  %{at} = getelementptr i64, ptr %{block}, i64 {number}")
        if kind != "address":
            lines.append(f"  %{name} = load {kind}, ptr %{at}, align 8")
    return "\n".join(lines)


def entry_function(symbol: str, before: str = "", after: str = "") -> str:
    """Return a record's function: its worker's loop is divided among threads if there are several.

    The arguments' first word is the address of the table, whose first word is the parallel loop;
    the second word is the number of threads.

    Args:
        symbol: the function's name; the worker is `symbol.worker`.
        before: lines before the work.
        after: lines after it, which return; "" returns 0.
    """
    after = after or "  ret i32 0"
    return f"""define i32 @{symbol}(ptr %args) #0 {{
entry:
{before}{words_of("args", "ptr table", "i64 threads")}
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %parallel, label %alone
parallel:
  %run = load ptr, ptr %table, align 8
  call void %run(ptr @{symbol}.worker, ptr %args, i64 %threads)
  br label %after
alone:
  call void @{symbol}.worker(ptr %args, i64 0, i64 1)
  br label %after
after:
{after}
}}"""
