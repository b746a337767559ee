"""The check of a plan: right plans pass, and every kind of wrong one is named."""

from __future__ import annotations

import random

import pytest

from kerasish.graph.plan import Lifetime, plan_memory
from kerasish.graph.plan_check import Access, PlanError, PlanStep, check_plan

SIZES = {"arena": 256}


def at(content, start, nbytes=64, memory="arena"):
    return Access(content, memory, start, nbytes)


X, A, B = at("x", 0), at("a", 64), at("b", 128)
CHAIN = [PlanStep("first", (X,), (A,)), PlanStep("second", (A,), (B,))]


def test_a_right_plan_passes():
    check_plan(SIZES, [X], CHAIN, [B])
    check_plan(SIZES, [X], [*CHAIN, PlanStep("third", (B,), (at("c", 0),))], [at("c", 0), B])


@pytest.mark.parametrize(
    ("steps", "after", "message"),
    [
        # Two values that live together.
        ([PlanStep("one", (X,), (A,)), PlanStep("two", (X,), (at("b", 64),)),
          PlanStep("add", (A, at("b", 64)), (at("c", 128),))], [], "add.*reads a .* there is b"),
        # The input is still needed.
        ([PlanStep("one", (X,), (A,)), PlanStep("two", (A,), (at("b", 0),)),
          PlanStep("three", (X,), ())],
         [], "three.*reads x .* there is b"),
        # Read before it is written.
        (CHAIN[::-1], [], "second.*reads a .* nothing yet"),
        # An output that is not written, one that is overwritten.
        (CHAIN, [at("c", 192)], "after the last step: reads c .* nothing yet"),
        (CHAIN, [at("c", 0)], "after the last step: reads c .* there is x"),
        # A part of a value is enough.
        ([PlanStep("one", (X,), (at("a", 64, 128),)), PlanStep("two", (X,), (at("b", 128),)),
          PlanStep("three", (at("a", 64, 128),), ())], [], "three.*reads a .* there is b"),
        # Two outputs, or an output and the scratch memory, of one step.
        ([PlanStep("both", (X,), (A, at("scratch", 64)))], [], "both.*after all its writes, has a"),
        # A step that writes where it reads.
        ([PlanStep("one", (X,), (at("a", 0),))], [], "one.*writes a over x"),
        ([PlanStep("one", (at("x", 0, 64),), (at("a", 0, 128),), frozenset({("a", "x")}))], [],
         "not the same bytes"),
        # Outside of the arena, and badly aligned.
        ([PlanStep("one", (X,), (at("a", 192, 65),))], [], "192 to 257 of arena, which has 256"),
        ([PlanStep("one", (X,), (at("a", 96),))], [], "begins at byte 96"),
    ],
)  # fmt: skip
def test_wrong_plans_are_named(steps, after, message):
    with pytest.raises(PlanError, match=message):
        check_plan(SIZES, [X], steps, after)


def test_a_declared_share_passes():
    check_plan(SIZES, [X], [PlanStep("in place", (X,), (at("a", 0),), frozenset({("a", "x")}))],
               [at("a", 0)])  # fmt: skip


def lanes(first, second, group=0):
    return [first._replace(lane=(group, 0)), second._replace(lane=(group, 1))]


def test_what_runs_at_the_same_time_may_read_but_not_write_the_same():
    one, two = PlanStep("one", (X,), (A,)), PlanStep("two", (X,), (B,))
    check_plan(SIZES, [X], lanes(one, two), [A, B])
    again = PlanStep("two", (X,), (at("c", 64),))
    ends = PlanStep("two", (), (at("c", 0),))
    for first, second in (
        (one, again),
        (one, ends),
        (ends, one),
        (one, PlanStep("two", (A,), (B,))),
    ):
        before = [X, A] if first is ends else [X]
        with pytest.raises(PlanError, match="at the same time"):
            check_plan(SIZES, before, lanes(first, second), [])
        # One after the other, or in groups of their own, they may.
        apart = [first._replace(lane=(0, 0)), second._replace(lane=(1, 1))]
        if first is not ends:
            check_plan(SIZES, before, apart, [])
            check_plan(SIZES, before, [first, second], [])


def program(rng):
    """A random program as (reads, writes) of each step, and its lifetimes."""
    created, steps, first, last = ["x"], [], {"x": -1}, {"x": -1}
    for number in range(rng.randrange(3, 12)):
        reads = [rng.choice(created) for _ in range(rng.randrange(1, 4))]
        writes = [f"{number}.{i}" for i in range(rng.randrange(1, 3))]
        created += writes
        steps.append((reads, writes))
        first.update(dict.fromkeys(writes, number))
        last.update(dict.fromkeys([*reads, *writes], number))
    last[created[-1]] = len(steps)
    return (
        steps,
        created[-1],
        {k: Lifetime(first[k], last[k], rng.randrange(1, 500)) for k in first},
    )


def verdict(steps, result, lives, plan):
    def place(key):
        return at(key, plan.offsets[key], lives[key].nbytes)

    check_plan(
        {"arena": plan.nbytes},
        [place("x")],
        [
            PlanStep(str(i), tuple(map(place, r)), tuple(map(place, w)))
            for i, (r, w) in enumerate(steps)
        ],
        [place(result)],
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_planner_and_the_check_agree(seed):
    steps, result, lives = program(random.Random(seed))
    verdict(steps, result, lives, plan_memory(lives))


def test_lifetimes_that_end_too_early_are_found():
    """Plans made of one lifetime cut short fail wherever another value takes that place."""
    actual = 0
    for seed in range(30):
        steps, result, lives = program(random.Random(seed))
        for key, life in lives.items():
            if life.last == life.first:
                continue
            cut = plan_memory({**lives, key: life._replace(last=life.first)})
            taken = any(
                cut.offsets[key] < cut.offsets[other] + own.nbytes
                and cut.offsets[other] < cut.offsets[key] + life.nbytes
                and life.first < own.first <= life.last
                for other, own in lives.items()
                if other != key
            )
            if taken:
                actual += 1
                with pytest.raises(PlanError):
                    verdict(steps, result, lives, cut)
            else:
                verdict(steps, result, lives, cut)
    assert actual > 20
