"""The smallest program that still fails: parts are taken away as long as it does."""

from __future__ import annotations

import ast
import dataclasses
import time
from collections.abc import Callable, Iterator

from .programs import Feed, Goal, Program, Step
from .run import build

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, seconds: float = 60.0) -> Program:
    """Return a program that is no larger and for which `fails` holds as it does for `program`."""
    end = time.monotonic() + seconds
    moved = True
    while moved and time.monotonic() < end:
        moved = False
        for smaller in candidates(program):
            if time.monotonic() > end:
                break
            if smaller != program and _holds(smaller, fails):
                program, moved = smaller, True
                break
    return program


def _holds(program: Program, fails: Fails) -> bool:
    try:
        build(program)
    except Exception:  # noqa: BLE001 - no program at all is no smaller program
        return False
    return fails(program)


def candidates(program: Program) -> Iterator[Program]:
    """Yield programs that are a little smaller, those that are much smaller first."""
    change = dataclasses.replace
    if len(program.goals) > 1:
        for k in range(len(program.goals)):
            yield live(change(program, goals=program.goals[:k] + program.goals[k + 1 :]))
    for step in program.steps:
        yield live(_as_input(program, step))
    for step in reversed(program.steps):
        for operand in dict.fromkeys(step.of):
            yield live(_without(program, step, operand))
    for k, goal in enumerate(program.goals):
        plain = Goal(goal.value, "'mse'", "real")
        if goal != plain:
            yield change(program, goals=(*program.goals[:k], plain, *program.goals[k + 1 :]))
    plain = {"optimizer": "optimizers.SGD(1.0)", "policy": "float32", "weights": "",
             "by_fit": False, "options": ()}  # fmt: skip
    for name, value in plain.items():
        if getattr(program, name) != value:
            yield change(program, **{name: value})
    if (program.rows, program.last) != (2, 1):
        yield change(program, rows=2, last=1)
    for k, step in enumerate(program.steps):
        for text in _less(step.layer):
            smaller = change(step, layer=text)
            yield change(program, steps=(*program.steps[:k], smaller, *program.steps[k + 1 :]))
    yield from _smaller_inputs(program)


def live(program: Program) -> Program:
    """Return the program without steps and inputs that no output reads."""
    needed = {goal.value for goal in program.goals}
    kept: list[Step] = []
    for step in reversed(program.steps):
        if step.name in needed:
            kept.append(step)
            needed.update(step.of)
    kept.reverse()
    kept = _own_layers(kept)
    feeds = tuple(f for f in program.feeds if f.name in needed)
    return dataclasses.replace(program, feeds=feeds, steps=tuple(kept))


def _own_layers(steps: list[Step]) -> list[Step]:
    """Let the first of the steps that share a layer make it."""
    makers: dict[str, str] = {}
    result = []
    for step in steps:
        key = step.like or step.name
        if step.layer and key in makers:
            step = dataclasses.replace(step, like=makers[key])
        elif step.layer:
            makers[key] = step.name
            step = dataclasses.replace(step, like="")
        result.append(step)
    return result


def _without(program: Program, step: Step, operand: str) -> Program:
    """Return the program in which a step's readers read one of its operands."""
    names = {step.name: operand}
    steps = tuple(
        dataclasses.replace(s, of=tuple(names.get(n, n) for n in s.of))
        for s in program.steps
        if s is not step
    )
    goals = tuple(dataclasses.replace(g, value=names.get(g.value, g.value)) for g in program.goals)
    return dataclasses.replace(program, steps=steps, goals=goals)


def _as_input(program: Program, step: Step) -> Program:
    """Return the program in which a step's value is an input, if it is read by other steps."""
    if not any(step.name in s.of for s in program.steps):
        return program
    try:
        shape = _shape_of(program, step.name)
    except Exception:  # noqa: BLE001 - no value of a known shape
        return program
    if shape is None:
        return program
    feed = Feed(step.name, shape, shape)
    steps = tuple(s for s in program.steps if s is not step)
    return dataclasses.replace(program, feeds=(*program.feeds, feed), steps=steps)


def _shape_of(program: Program, name: str) -> tuple[int, ...] | None:
    """Return the sizes of one row of a value, None where one is open or it is not float32."""
    cut = dataclasses.replace(program, goals=(Goal(name, "'mse'", "real"),))
    output = build(live(cut)).outputs[0]
    shape = tuple(output.shape)[1:]
    return None if None in shape or str(output.dtype) != "float32" else shape


def _less(code: str) -> Iterator[str]:
    """Yield a constructor's text with one keyword argument less."""
    if not code:
        return
    call = ast.parse(code, mode="eval").body
    if not isinstance(call, ast.Call):
        return
    for k in range(len(call.keywords)):
        less = ast.Call(call.func, call.args, call.keywords[:k] + call.keywords[k + 1 :])
        yield ast.unparse(less)


def _smaller_inputs(program: Program) -> Iterator[Program]:
    for k, feed in enumerate(program.feeds):
        for axis, size in enumerate(feed.sizes):
            for less in {1, 2, size - 1} - {size}:
                if less < 1 or less > size:
                    continue
                sizes = (*feed.sizes[:axis], less, *feed.sizes[axis + 1 :])
                smaller = dataclasses.replace(feed, declared=sizes, sizes=sizes)
                feeds = (*program.feeds[:k], smaller, *program.feeds[k + 1 :])
                yield dataclasses.replace(program, feeds=feeds)
