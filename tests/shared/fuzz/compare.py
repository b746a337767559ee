"""Compares what engines give: equal up to rounding, or a disagreement with names and numbers."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Iterable, Sequence

import numpy as np

from .noise import EPSILONS, jittered
from .programs import Program
from .run import EAGER, Engine, Found, run

# What passes without further checks, as shares of an element and of its tensor's largest number.
RELATIVE, OF_LARGEST, ABSOLUTE = 1e-4, 1e-5, 1e-6
# Else: how many times the spread of runs that round at random. 4 runs see about half of the range.
RUNS, TIMES = 4, 12.0
# What is beyond that, is judged by more runs: they see nearly all of the range, and the choices
# that few roundings turn, such as a value that crosses one of a metric's thresholds.
MORE_RUNS, MORE_TIMES = 36, 6.0

NEARLY_INFINITE = 1e37  # a term of a sum, or a partial sum, may have been beyond float32's largest

# Errors that say nothing of the program: the package's own say what was expected.
RAW = tuple(
    f"{name}:" for name in (
        "AttributeError", "IndexError", "KeyError", "NameError", "TypeError", "AssertionError",
        "UnboundLocalError", "ZeroDivisionError", "RecursionError", "StopIteration",
    )
)  # fmt: skip


@dataclasses.dataclass
class Verdict:
    """What came out for a program on some engines.

    Attributes:
        kind: "equal", "refused" (all engines refuse it, in words of the package), "disagreement"
            or "crash".
        engine: the engine concerned.
        text: the quantities that differ, or the error.
        noisy: how many quantities were judged by the spread of runs that round at random.
    """

    kind: str
    engine: str = ""
    text: str = ""
    noisy: int = 0

    @property
    def bad(self) -> bool:
        return self.kind in ("disagreement", "crash")


def check(
    program: Program, engines: Sequence[Engine], saved: bool = False, gradients: bool = True,
    whole: bool = True,
) -> Verdict:  # fmt: skip
    """Return the verdict on a program: each engine against the eager one."""
    expected, refusal = _attempt(program, EAGER, False, gradients, whole)
    noisy = 0
    for engine in engines:
        found, error = _attempt(program, engine, saved, gradients, whole)
        if expected is None or found is None:
            if (expected is None) == (found is None):
                continue
            who = EAGER.name if expected is None else engine.name
            return Verdict("crash", who, refusal if expected is None else error)
        verdict = compare(program, expected, found, engine, gradients, whole)
        noisy += verdict.noisy
        if verdict.bad:
            return verdict
    if expected is None:
        return Verdict("crash" if refusal.startswith(RAW) else "refused", "", refusal)
    return Verdict("equal", noisy=noisy)


def _attempt(
    program: Program, engine: Engine, saved: bool, gradients: bool, whole: bool
) -> tuple[Found | None, str]:
    try:
        return run(program, engine, saved, gradients, whole), ""
    except Exception as error:  # noqa: BLE001 - compared with what other engines raise
        lines = traceback.format_exception(error)
        return None, f"{type(error).__name__}: {error}\n{''.join(lines[-4:])}"


def compare(
    program: Program, expected: Found, found: Found, engine: Engine, gradients: bool = True,
    whole: bool = True,
) -> Verdict:  # fmt: skip
    """Return the verdict on what an engine gave."""
    if list(expected) != list(found):
        odd = sorted(set(expected) ^ set(found))
        return Verdict("disagreement", engine.name, f"other names: {odd[:6]}")
    forms = [n for n in expected if _form(expected[n]) != _form(found[n])]
    if forms:
        told = [f"{n}: {_form(expected[n])} and {_form(found[n])}" for n in forms[:4]]
        return Verdict("disagreement", engine.name, f"other shapes or dtypes: {told}")
    diverged = {_stage(n) for n in expected if _overflows(expected[n]) and _overflows(found[n])}
    defined = {
        n: _is_defined(program, n, expected[n], found[n], _stage(n) in diverged) for n in expected
    }
    times = {n: excesses(expected[n], found[n]) for n in expected}
    suspects = [n for n in expected if _worst(times[n], defined[n]) > 1]
    if not suspects:
        return Verdict("equal")
    apart = suspects
    spreads: Found = {}
    for seeds, factor in ((range(RUNS), TIMES), (range(RUNS, MORE_RUNS), MORE_TIMES)):
        spreads = noise_of(program, expected, gradients, whole, seeds, spreads)
        times = {n: excesses(expected[n], found[n], spreads[n], factor) for n in apart}
        apart = [n for n in apart if _worst(times[n], defined[n]) > 1]
        if not apart:
            return Verdict("equal", noisy=len(suspects))
    wide = widened(program)
    if wide is not None:
        # Engines may compute halves in float32, which keeps what overflows or vanishes in halves.
        base, _ = _attempt(wide, EAGER, False, gradients, whole)
        if base is not None:
            least = max(EPSILONS[h] for h in halves_of(program))
            rough = noise_of(wide, base, gradients, whole, least=least)
            for n in apart:
                if n not in base:  # what a loss-scaling optimizer keeps, only in float16
                    continue
                with np.errstate(over="ignore"):  # beyond 65504 an output of float16 is infinite
                    wider = base[n].astype(found[n].dtype)
                times[n] = np.minimum(times[n], excesses(wider, found[n], rough[n], MORE_TIMES))
            apart = [n for n in apart if _worst(times[n], defined[n]) > 1]
            # Rounded to float16 after each op, a number overflows that a fused loop keeps. Then the
            # loss scaling skips a step on only one engine.
            calls = [n for n in apart if _stage(n) == "calls"]
            if all(_overflows_first(expected[n], found[n], times[n]) for n in calls):
                lost = any(_overflows(expected[n]) and not _overflows(found[n]) for n in suspects)
                apart = [n for n in apart if n not in calls and not lost]
    if not apart:
        return Verdict("equal", noisy=len(suspects))
    lines = [_told(n, expected[n], found[n], times[n], defined[n]) for n in apart[:8]]
    return Verdict("disagreement", engine.name, "\n".join(lines), len(suspects))


def halves_of(program: Program) -> set[str]:
    """Return the dtypes of 16 bits that may overflow before float32 does: float16 in a policy or a
    cast, bfloat16 in a cast, which may meet the largest numbers of float32."""
    found = set(re.findall(r"ops\.cast\(.*'(b?float16)'\)", program.source()))
    if program.policy == "mixed_float16" or "mixed_float16" in program.source():
        found.add("float16")
    return found


def widened(program: Program) -> Program | None:
    """Return a program with float32 in place of `halves_of(program)`; None where there are none."""
    if not halves_of(program):
        return None
    return _Widened(**{f.name: getattr(program, f.name) for f in dataclasses.fields(program)})


class _Widened(Program):
    def source(self) -> str:
        text = super().source().replace("mixed_float16", "float32")
        return re.sub(r"(ops\.cast\(.*)'b?float16'\)", r"\1'float32')", text)


_TRAININGS = ("more", "training", "weights", "optimizer")


def _stage(name: str) -> str:
    """Return the stage of a program that a quantity belongs to: the first training or the next."""
    if not name.startswith(_TRAININGS):
        return "calls"
    return "more" if name.startswith("more") else "training"


def _overflows(values: np.ndarray) -> bool:
    return not (np.abs(_wide(values)) < 1e30).all()


def _overflows_first(expected: np.ndarray, found: np.ndarray, times: np.ndarray) -> bool:
    """Return whether all numbers that differ are finite only in `found`."""
    return bool((np.isfinite(_wide(found)) & ~np.isfinite(_wide(expected)))[times > 1].all())


def _is_defined(
    program: Program, name: str, expected: np.ndarray, found: np.ndarray, diverged: bool
) -> np.ndarray:
    """Return where a quantity has a number that both engines must give.

    Not in correlations of a constant (0 / 0, up to the rounding of a mean: NaN or next to nothing),
    nor where a training overflowed on both engines, or on one while the other is about to: the
    order of a sum's terms decides whether it is NaN or infinite. Once numbers have overflowed on
    both (`diverged`), nor where one of them is NaN: libraries do not multiply the zeros of padding,
    and 0 * inf is NaN. In calls, only next to the largest number of float32, where a sum's terms
    overflow in one order, but not in another.
    """
    a, b = np.abs(_wide(expected)), np.abs(_wide(found))
    free = np.zeros(a.shape, bool)
    if "logs" in name and any("Correlation" in m for goal in program.goals for m in goal.metrics):
        free |= ~(a >= 1e-5) & ~(b >= 1e-5)
    if _stage(name) != "calls":
        free |= ~(a < 1e30) & ~(b < 1e30)
        if diverged:
            free |= np.isnan(a) | np.isnan(b)
    else:
        free |= ~(a < NEARLY_INFINITE) & ~(b < NEARLY_INFINITE) & ~(np.isfinite(a) & np.isfinite(b))
    return ~free


def noise_of(
    program: Program, expected: Found, gradients: bool = True, whole: bool = True,
    seeds: Iterable[int] = range(RUNS), before: Found | None = None, least: float = 0.0,
) -> Found:  # fmt: skip
    """Return by how much each number moves when the eager engine rounds at random; inf: not at all
    the same kind of number.

    Args:
        program, gradients, whole: what to run.
        expected: its numbers without noise.
        seeds: a run for each.
        before: how far the numbers moved in runs before these.
        least: the least share by which a result is rounded.
    """
    spreads = dict(before or {name: np.zeros(np.shape(a)) for name, a in expected.items()})
    for seed in seeds:
        with jittered(seed, least):
            moved, _ = _attempt(program, EAGER, False, gradients, whole)
        for name, base in expected.items():
            if moved is None or name not in moved or _form(moved[name]) != _form(base):
                spreads[name][...] = np.inf
                continue
            spreads[name] = np.maximum(spreads[name], _distance(base, moved[name]))
    return spreads


def excess(a: np.ndarray, b: np.ndarray, spread: np.ndarray | None = None) -> float:
    """Return by how many times two arrays differ more than they may; <= 1: equal."""
    return _worst(excesses(a, b, spread), np.ones(np.shape(a), bool))


def _worst(times: np.ndarray, where: np.ndarray) -> float:
    return float(np.max(np.where(where, times, 0.0), initial=0.0))


def excesses(
    a: np.ndarray, b: np.ndarray, spread: np.ndarray | None = None, factor: float = TIMES
) -> np.ndarray:
    """Return for each element by how many times two arrays differ more than they may.

    Args:
        a, b: the arrays.
        spread: how far rounding moved the elements.
        factor: how many times that they may differ.
    """
    if a.size == 0:
        return np.zeros(np.shape(a))
    exact = np.abs(_wide(a))
    finite = exact[np.isfinite(exact)]
    largest = float(finite.max()) if finite.size else 0.0
    share = {"float16": 30.0, "bfloat16": 200.0}.get(str(b.dtype), 1.0)
    allowed = (
        share * (RELATIVE * np.nan_to_num(exact, posinf=0.0) + OF_LARGEST * largest) + ABSOLUTE
    )
    if spread is not None:
        # A tensor as noisy as its noisiest element: a sum's terms may meet anywhere in it.
        worst = float(np.max(spread, initial=0.0))
        allowed = allowed + factor * np.maximum(spread, 0.25 * worst)
    with np.errstate(all="ignore"):
        return np.nan_to_num(_distance(a, b) / allowed, nan=0.0, posinf=np.inf)


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return |a - b|; 0 where both are the same NaN or infinity, inf where only one is."""
    x, y = _wide(a), _wide(b)
    with np.errstate(all="ignore"):
        apart = np.abs(x - y)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _wide(a: np.ndarray) -> np.ndarray:
    return np.asarray(a).astype("float64")


def _form(a: np.ndarray) -> tuple[tuple[int, ...], str]:
    return tuple(np.shape(a)), str(a.dtype)


def _told(name: str, a: np.ndarray, b: np.ndarray, times: np.ndarray, where: np.ndarray) -> str:
    at = int(np.argmax(np.where(where, times, -1.0)))
    place = tuple(int(i) for i in np.unravel_index(at, np.shape(a)))
    return (
        f"{name}{list(place)}: {a.ravel()[at]!r} and {b.ravel()[at]!r} "
        f"({times.ravel()[at]:.3g} times allowed)"
    )
