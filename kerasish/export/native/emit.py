"""LLVM IR of a native library: the kernels, a function for each plan, and the functions of the
header.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kerasish.backends.static.codegen.kernels import texts
from kerasish.backends.static.codegen.vector_math import LIBRARY, TABLE_WORDS
from kerasish.backends.static.lowering.standalone_units import COPY, Repeat, StandaloneStep
from kerasish.backends.static.machine.assembly import Target
from kerasish.export.native.dispatch import dispatcher
from kerasish.export.native.plan import ARENA, REGION, SPAN, BatchPlan, Ports, calls_of
from kerasish.ops import dtypes

# What the functions return.
OK, NO_POINTER, NEGATIVE, NOT_ALIGNED, NO_INDEX, FAILED, TOO_OLD = range(7)
MESSAGES = {
    OK: "no error",
    NO_POINTER: "an input or output is NULL",
    NEGATIVE: "the number of examples is negative",
    NOT_ALIGNED: "the memory given is not aligned to 64 bytes",
    NO_INDEX: "an index is out of the range of its table",
    FAILED: "a kernel failed",
    TOO_OLD: "the processor is older than those that the library is for",
}
_OUT_OF_RANGE = 2  # a record's status


class Emitter:
    """Writes the module.

    Args:
        name: the prefix of all functions.
        plans: the larger batches first; the last is for one example.
        targets: name -> processor; with several, from the oldest to the latest, code for each is
            written, and the first call chooses.
        weights: their bytes; None: the caller gives them.
        size: of the weights, in bytes.
    """

    def __init__(
        self,
        name: str,
        plans: Sequence[BatchPlan],
        targets: Mapping[str, Target],
        weights: bytes | None,
        size: int,
    ) -> None:
        self.name, self.plans, self.targets = name, list(plans), dict(targets)
        self.weights, self.size = weights, size
        # What differs between processors: the names of kernels, plans and of the function that
        # goes through the examples, and the number of the attributes.
        self.symbols: dict[Any, str] = {}
        self.prefix, self.attributes = name, 0
        self._count = 0

    def module(self) -> str:
        """Return the text of the module."""
        declared = {"declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"}
        declared.add("declare ptr @llvm.threadlocal.address.p0(ptr)")
        parts, several = [self._globals()], len(self.targets) > 1
        for number, (name, target) in enumerate(self.targets.items()):
            self.attributes = number
            self.prefix = f"{self.name}.{name}" if several else self.name
            functions, needed = self._functions(target)
            declared |= needed
            internal = f"{self.prefix}.predict" if several else ""
            parts += [*functions, self._predict(internal), _attributes(number, target, several)]
        self.attributes = 0
        if several:
            arguments = [f"ptr {p}" for p in (*self._given(), *self._pointers())]
            parts.append(dispatcher(self.name, list(self.targets), arguments, TOO_OLD))
        parts.append(self._facts())
        return "\n".join([*parts, *sorted(declared), ""])

    def _functions(self, target: Target) -> tuple[list[str], set[str]]:
        """Return kernels and plans for a processor, and what they declare."""
        kernels = [s.kernel for p in self.plans for s in calls_of(p)]
        distinct = dict.fromkeys(kernels)
        self.symbols = {k: f"{self.prefix}.kernel{i}" for i, k in enumerate(distinct)}
        generated = texts({s: k for k, s in self.symbols.items()}, target).values()
        declared = {d for _, needs in generated for d in needs}
        # Kernels are internal: LLVM may inline them and drop what is not called.
        functions = [
            re.sub(r"^define (?!internal)", "define internal ", t, flags=re.M) for t, _ in generated
        ]
        functions = [t.replace(") #0 {", f") #{self.attributes} {{") for t in functions]
        return [*functions, *(self._plan(i, p) for i, p in enumerate(self.plans))], declared

    def _given(self) -> list[str]:
        """Return the argument for weights that the caller holds."""
        return [] if self.weights is not None else ["%weights"]

    def _pointers(self) -> list[str]:
        """Return the arguments for inputs and outputs."""
        last = self.plans[-1]
        ins = [f"%x{i}" for i in range(len(last.inputs.offsets))]
        return [*ins, *(f"%y{i}" for i in range(len(last.outputs.offsets)))]

    # --- data ---------------------------------------------------------------------------------

    def _globals(self) -> str:
        # Windows may place the memory of threads at a multiple of 16.
        arena = max(p.arena for p in self.plans) + 64
        lines = [
            f"@{self.name}.arena = internal thread_local global [{arena} x i8] zeroinitializer, "
            "align 16"
        ]
        names = ["null", *(f"@{n}" for n in LIBRARY)]
        names += ["null"] * (TABLE_WORDS - len(names))
        # A word of the table has 64 bits, a pointer may have 32.
        narrow = any(t.triple.startswith("wasm32") for t in self.targets.values())
        word = "{ ptr, i32 }" if narrow else "ptr"
        entries = [f"{word} {{ ptr {n}, i32 0 }}" if narrow else f"ptr {n}" for n in names]
        lines.append(
            f"@{self.name}.table = internal constant [{TABLE_WORDS} x {word}] "
            f"[{', '.join(entries)}], align 8"
        )
        two = ("pow", "fmod", "atan2", "hypot", "nextafter")
        for function in LIBRARY:
            arguments = "double, double" if function in two else "double"
            lines.append(f"declare double @{function}({arguments})")
        if self.weights is not None:
            lines.append(
                f"@{self.name}.weights = internal constant [{max(len(self.weights), 1)} x i8] "
                f'c"{_escaped(self.weights or bytes(1))}", align 64'
            )
        for code, message in MESSAGES.items():
            data = message.encode() + b"\0"
            lines.append(
                f"@{self.name}.message{code} = internal constant [{len(data)} x i8] "
                f'c"{_escaped(data)}"'
            )
        return "\n".join(lines)

    # --- plans --------------------------------------------------------------------------------

    def _plan(self, number: int, plan: BatchPlan) -> str:
        lines = [
            f"define internal i32 @{self.prefix}.plan{number}(ptr %weights, ptr %arena) "
            f"#{self.attributes} {{",
            "entry:",
        ]
        calls = calls_of(plan)
        largest = max((len(s.words) for s in calls), default=1)
        lines += [
            f"  %block = alloca [{largest} x i64], align 64",
            "  %arena.word = ptrtoint ptr %arena to i64",
            "  %weights.word = ptrtoint ptr %weights to i64",
        ]
        for step in plan.steps:
            if isinstance(step, Repeat):
                lines += self._loop(step.times, step.steps)
            elif step.kernel == COPY:
                lines += self._copy(step)
            else:
                lines += self._loop(step.times, [step])
        lines += ["  ret i32 0", "failed:"]
        lines += self._failed(len(calls))
        return "\n".join([*lines, "}"])

    def _failed(self, calls: int) -> list[str]:
        if not calls:
            return ["  ret i32 0"]
        return [
            "  %status = load i32, ptr %block, align 8",
            f"  %range = icmp eq i32 %status, {_OUT_OF_RANGE}",
            f"  %code = select i1 %range, i32 {NO_INDEX}, i32 {FAILED}",
            "  ret i32 %code",
        ]

    def _word(self, word: int, lines: list[str]) -> str:
        """Return the operand of a word: a number, or an address that is computed."""
        if word < REGION:
            return str(word)
        region, offset = divmod(word - REGION, SPAN)
        base = "%arena.word" if region == ARENA else "%weights.word"
        self._count += 1
        lines.append(f"  %w{self._count} = add i64 {base}, {offset}")
        return f"%w{self._count}"

    def _loop(self, times: int, steps: Sequence[StandaloneStep]) -> list[str]:
        """Return the calls of some steps, one after the other, `times` times."""
        if times == 1:
            return [line for step in steps for line in self._call(step, "")]
        self._count += 1
        n = self._count
        lines = [
            f"  br label %before{n}",
            f"before{n}:",
            f"  br label %loop{n}",
            f"loop{n}:",
            f"  %i{n} = phi i64 [ 0, %before{n} ], [ %next{n}, %latch{n} ]",
        ]
        for step in steps:
            lines += self._call(step, f"%i{n}")
        return [
            *lines,
            f"  br label %latch{n}",
            f"latch{n}:",
            f"  %next{n} = add i64 %i{n}, 1",
            f"  %more{n} = icmp slt i64 %next{n}, {times}",
            f"  br i1 %more{n}, label %loop{n}, label %after{n}",
            f"after{n}:",
        ]

    def _call(self, step: StandaloneStep, turn: str) -> list[str]:
        """Return one call, with the words moved on by the number of the turn, if there are some."""
        lines: list[str] = []
        moves = dict(step.moves) if turn else {}
        operands = [self._word(word, lines) for word in step.words]
        self._count += 1
        n = self._count
        lines.append(f"  %table{n} = ptrtoint ptr @{self.name}.table to i64")
        operands[0] = f"%table{n}"
        for i, operand in enumerate(operands):
            if moves.get(i):
                self._count += 1
                by, at = f"%m{self._count}", f"%a{self._count}"
                lines.append(f"  {by} = mul i64 {turn}, {moves[i]}")
                lines.append(f"  {at} = add i64 {operand}, {by}")
                operand = at
            self._count += 1
            lines.append(f"  %p{self._count} = getelementptr i64, ptr %block, i64 {i}")
            lines.append(f"  store i64 {operand}, ptr %p{self._count}, align 8")
        return [
            *lines,
            f"  %s{n} = call i32 @{self.symbols[step.kernel]}(ptr %block)",
            f"  %bad{n} = icmp ne i32 %s{n}, 0",
            f"  br i1 %bad{n}, label %keep{n}, label %done{n}",
            f"keep{n}:",
            f"  store i32 %s{n}, ptr %block, align 8",
            "  br label %failed",
            f"done{n}:",
        ]

    def _copy(self, step: StandaloneStep) -> list[str]:
        lines: list[str] = []
        to, source, size = (self._word(w, lines) for w in step.words)
        self._count += 1
        n = self._count
        return [
            *lines,
            f"  %to{n} = inttoptr i64 {to} to ptr",
            f"  %from{n} = inttoptr i64 {source} to ptr",
            f"  call void @llvm.memmove.p0.p0.i64(ptr %to{n}, ptr %from{n}, i64 {size}, i1 false)",
        ]

    # --- the functions of the header ----------------------------------------------------------

    def _predict(self, internal: str) -> str:
        """The function that goes through the examples: as many as a plan takes at once.

        Args:
            internal: its name; "": it is the function of the header.
        """
        pointers = [*self._given(), *self._pointers()]
        arguments = ", ".join(f"ptr {p}" for p in pointers)
        name = f"internal i32 @{internal}" if internal else f"i32 @{self.name}_predict"
        lines = [
            f"define {name}({arguments}, i64 %n, ptr %given) #{self.attributes} {{",
            "entry:",
            "  %negative = icmp slt i64 %n, 0",
            f"  br i1 %negative, label %e{NEGATIVE}, label %check0",
        ]
        for i, pointer in enumerate(pointers):
            lines += [
                f"check{i}:",
                f"  %null{i} = icmp eq ptr {pointer}, null",
                f"  br i1 %null{i}, label %e{NO_POINTER}, label %check{i + 1}",
            ]
        weights = f"@{self.name}.weights" if self.weights is not None else "%weights"
        lines += [
            f"check{len(pointers)}:",
            "  %own = icmp eq ptr %given, null",
            f"  %memory = call ptr @llvm.threadlocal.address.p0(ptr @{self.name}.arena)",
            "  %memory.address = ptrtoint ptr %memory to i64",
            "  %memory.gap = sub i64 0, %memory.address",
            "  %memory.rest = and i64 %memory.gap, 63",
            "  %mine = getelementptr i8, ptr %memory, i64 %memory.rest",
            "  %arena = select i1 %own, ptr %mine, ptr %given",
            "  %address = ptrtoint ptr %arena to i64",
            f"  %weights.address = ptrtoint ptr {weights} to i64",
            "  %both = or i64 %address, %weights.address",
            "  %low = and i64 %both, 63",
            "  %crooked = icmp ne i64 %low, 0",
            f"  br i1 %crooked, label %e{NOT_ALIGNED}, label %run0",
        ]
        before = f"check{len(pointers)}"
        start = "0"
        for number, plan in enumerate(self.plans):
            lines += self._rounds(number, plan, weights, before, start)
            before, start = f"run{number}", f"%at{number}"
        count = len(self.plans)
        lines += [f"run{count}:", f"  ret i32 {OK}"]
        for code in (NO_POINTER, NEGATIVE, NOT_ALIGNED):
            lines += [f"e{code}:", f"  ret i32 {code}"]
        for number in range(count):
            lines += [f"bad{number}:", f"  ret i32 %status{number}"]
        return "\n".join([*lines, "}"])

    def _rounds(
        self, number: int, plan: BatchPlan, weights: str, before: str, start: str
    ) -> list[str]:
        lines = [
            f"run{number}:",
            f"  %at{number} = phi i64 [ {start}, %{before} ], [ %next{number}, %turn{number} ]",
            f"  %next{number} = add i64 %at{number}, {plan.batch}",
            f"  %fits{number} = icmp sle i64 %next{number}, %n",
            f"  br i1 %fits{number}, label %go{number}, label %run{number + 1}",
            f"go{number}:",
        ]
        lines += self._move(number, plan, plan.inputs, "x", True)
        lines += [
            f"  %status{number} = call i32 @{self.prefix}.plan{number}(ptr {weights}, ptr %arena)",
            f"  %ok{number} = icmp eq i32 %status{number}, 0",
            f"  br i1 %ok{number}, label %turn{number}, label %bad{number}",
            f"turn{number}:",
        ]
        lines += self._move(number, plan, plan.outputs, "y", False)
        lines.append(f"  br label %run{number}")
        return lines

    def _move(
        self, number: int, plan: BatchPlan, ports: Ports, letter: str, into: bool
    ) -> list[str]:
        lines = []
        for i, (offset, size) in enumerate(zip(ports.offsets, sizes_of(ports))):
            self._count += 1
            n = self._count
            ends = (f"%there{n}", f"%here{n}") if into else (f"%here{n}", f"%there{n}")
            lines += [
                f"  %skip{n} = mul i64 %at{number}, {size}",
                f"  %here{n} = getelementptr i8, ptr %{letter}{i}, i64 %skip{n}",
                f"  %there{n} = getelementptr i8, ptr %arena, i64 {offset}",
                f"  call void @llvm.memmove.p0.p0.i64(ptr {ends[0]}, ptr {ends[1]}, "
                f"i64 {size * plan.batch}, i1 false)",
            ]
        return lines

    def _facts(self) -> str:
        arena = max(p.arena for p in self.plans)
        cases = " ".join(f"i32 {code}, label %m{code}" for code in MESSAGES)
        blocks = "\n".join(f"m{code}:\n  ret ptr @{self.name}.message{code}" for code in MESSAGES)
        target = ""
        if len(self.targets) == 1:
            data = next(iter(self.targets)).encode() + b"\0"
            target = (
                f"@{self.name}.target = internal constant [{len(data)} x i8] "
                f'c"{_escaped(data)}"\n'
                f"define ptr @{self.name}_target() #0 {{\n  ret ptr @{self.name}.target\n}}\n"
            )
        return (
            f"{target}define i64 @{self.name}_arena_size() #0 {{\n  ret i64 {arena}\n}}\n"
            f"define i64 @{self.name}_weights_size() #0 {{\n  ret i64 {self.size}\n}}\n"
            f"define ptr @{self.name}_message(i32 %code) #0 {{\n"
            f"  switch i32 %code, label %m{FAILED} [ {cases} ]\n{blocks}\n}}"
        )


def _attributes(number: int, target: Target, several: bool) -> str:
    """Return the attributes of a processor's functions.

    Args:
        number: of the group.
        target: the processor.
        several: whether the module has functions for others, too.
    """
    words = ["nounwind"]
    if target.level == "avx512":
        words += ['"prefer-vector-width"="512"', '"min-legal-vector-width"="512"']
    if several:
        words.append(f'"target-cpu"="{target.cpu}"')
    return f"attributes #{number} = {{ {' '.join(words)} }}"


def sizes_of(ports: Ports) -> list[int]:
    """Return the bytes of one example of each input or output."""
    return [
        math.prod(shape) * int(np.dtype(dtypes.array_dtype(dtype)).itemsize)
        for shape, dtype in zip(ports.shapes, ports.dtypes)
    ]


# Every byte as LLVM writes it: a backslash and two digits.
_ESCAPES = np.frombuffer("".join(f"\\{b:02x}" for b in range(256)).encode(), "uint8")
_ESCAPES = _ESCAPES.reshape(256, 3)


def _escaped(data: bytes) -> str:
    return str(_ESCAPES[np.frombuffer(data, "uint8")].tobytes(), "ascii")
