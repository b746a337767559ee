"""LLVM IR that chooses at run time among code for several x86-64 processors."""

from __future__ import annotations

from collections.abc import Sequence

# What the x86-64 ABI says of each level: bits of CPUID (leaf, register) beyond the level below, and
# the parts of a thread's state that the system must save (XCR0).
# Source: x86-64 psABI, section 3.1.1; Intel SDM, volume 2, CPUID.
_BITS: dict[str, dict[tuple[int, str], tuple[int, ...]]] = {
    "x86-64-v2": {(1, "c"): (0, 9, 13, 19, 20, 23)},
    "x86-64-v3": {(1, "c"): (12, 22, 27, 28, 29), (7, "b"): (3, 5, 8), (0x80000001, "c"): (5,)},
    "x86-64-v4": {(7, "b"): (16, 17, 28, 30, 31)},
}
_SAVED = {"x86-64-v3": 0x6, "x86-64-v4": 0xE6}
LEVELS = list(_BITS)  # from the oldest to the latest


def dispatcher(name: str, targets: Sequence[str], arguments: Sequence[str], too_old: int) -> str:
    """Return the functions `NAME_predict` and `NAME_target`.

    The first call asks the processor; later ones read what it said.

    Args:
        name: the prefix of all functions; `@NAME.TARGET.predict` is the code for a target.
        targets: some of `LEVELS`, in their order.
        arguments: of the code, with types, without the last two.
        too_old: what `NAME_predict` returns on a processor below all targets.
    """
    given = ", ".join([*arguments, "i64 %n", "ptr %given"])
    cases = " ".join(f"i32 {i + 2}, label %t{i}" for i in range(len(targets)))
    choice = [
        "entry:",
        f"  %chosen = call i32 @{name}.choose()",
        f"  switch i32 %chosen, label %old [ {cases} ]",
    ]
    lines = [
        f"@{name}.chosen = internal global i32 0",
        *_detect(name, targets),
        f"define i32 @{name}_predict({given}) #0 {{",
        *choice,
    ]
    for number, target in enumerate(targets):
        lines += [
            f"t{number}:",
            f"  %r{number} = tail call i32 @{name}.{target}.predict({given})",
            f"  ret i32 %r{number}",
        ]
    lines += ["old:", f"  ret i32 {too_old}", "}"]
    for number, target in enumerate((*targets, "none")):
        lines.append(
            f'@{name}.target{number} = internal constant [{len(target) + 1} x i8] c"{target}\\00"'
        )
    lines += [f"define ptr @{name}_target() #0 {{", *choice]
    for number in range(len(targets)):
        lines += [f"t{number}:", f"  ret ptr @{name}.target{number}"]
    return "\n".join([*lines, "old:", f"  ret ptr @{name}.target{len(targets)}", "}"])


def _detect(name: str, targets: Sequence[str]) -> list[str]:
    """Return the function that gives 2 + the number of the latest target that runs here, or 1."""
    lines = [
        f"define internal i32 @{name}.choose() #0 {{",
        "entry:",
        f"  %known = load atomic i32, ptr @{name}.chosen monotonic, align 4",
        "  %is = icmp ne i32 %known, 0",
        "  br i1 %is, label %known.there, label %ask",
        "known.there:",
        "  ret i32 %known",
        "ask:",
        *cpuid(0),
        "  %has7 = icmp uge i32 %l0a, 7",
        *cpuid(1),
        *cpuid(7),
        *cpuid(0x80000001),
        # XGETBV is there if the system has switched it on.
        "  %os.bit = and i32 %l1c, 134217728",
        "  %os = icmp ne i32 %os.bit, 0",
        "  br i1 %os, label %state, label %look",
        "state:",
        *saved_state(),
        "  br label %look",
        "look:",
        "  %saved = phi i32 [ 0, %ask ], [ %xcr.low, %state ]",
    ]
    before = "true"
    best = "1"
    for number, level in enumerate(LEVELS):
        tests = [
            (f"%l{leaf}{register}", sum(1 << bit for bit in bits))
            for (leaf, register), bits in _BITS[level].items()
        ]
        if level in _SAVED:
            tests.append(("%saved", _SAVED[level]))
        for i, (value, mask) in enumerate(tests):
            at = f"%v{number}.{i}"
            lines += [
                f"  {at}.bits = and i32 {value}, {mask}",
                f"  {at}.full = icmp eq i32 {at}.bits, {mask}",
                f"  {at} = and i1 {before}, {at}.full",
            ]
            before = at
        if any(leaf == 7 for leaf, _ in _BITS[level]):
            lines.append(f"  %v{number}.leaf = and i1 {before}, %has7")
            before = f"%v{number}.leaf"
        if level in targets:
            lines.append(
                f"  %best{number} = select i1 {before}, i32 {targets.index(level) + 2}, i32 {best}"
            )
            best = f"%best{number}"
    return [
        *lines,
        f"  store atomic i32 {best}, ptr @{name}.chosen monotonic, align 4",
        f"  ret i32 {best}",
        "}",
    ]


def cpuid(leaf: int) -> list[str]:
    """Return the lines that set %l<leaf>a to %l<leaf>d: the processor's registers."""
    kind = "{ i32, i32, i32, i32 }"
    signed = leaf - (1 << 32) if leaf >= 1 << 31 else leaf
    lines = [
        f'  %l{leaf} = call {kind} asm sideeffect "cpuid", '
        '"={ax},={bx},={cx},={dx},{ax},{cx},~{dirflag},~{fpsr},~{flags}"'
        f"(i32 {signed}, i32 0)"
    ]
    for i, register in enumerate("abcd"):
        lines.append(f"  %l{leaf}{register} = extractvalue {kind} %l{leaf}, {i}")
    return lines


def saved_state() -> list[str]:
    """Return the lines that set %xcr.low: what of a thread's state the system saves (XCR0)."""
    return [
        '  %xcr = call { i32, i32 } asm sideeffect "xgetbv", '
        '"={ax},={dx},{cx},~{dirflag},~{fpsr},~{flags}"(i32 0)',
        "  %xcr.low = extractvalue { i32, i32 } %xcr, 0",
    ]
