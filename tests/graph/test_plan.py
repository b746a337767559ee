"""The arena: blocks that live together never overlap, and memory is shared."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kerasish.graph.plan import ALIGNMENT, Lifetime, plan_memory

lifetimes = st.dictionaries(
    st.integers(0, 60),
    st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(0, 5000)).map(
        lambda t: Lifetime(t[0], t[0] + t[1], t[2])
    ),
    max_size=40,
)


@given(lifetimes)
def test_no_overlap(lives):
    plan = plan_memory(lives)
    placed = [(plan.offsets[k], max(life.nbytes, 1), life) for k, life in lives.items()]
    for i, (start, size, life) in enumerate(placed):
        assert start % ALIGNMENT == 0
        assert start + size <= plan.nbytes
        for other_start, other_size, other in placed[i + 1 :]:
            together = life.first <= other.last and other.first <= life.last
            apart = start + size <= other_start or other_start + other_size <= start
            assert apart or not together
    assert plan.nbytes <= plan.naive


def test_chain_needs_two_blocks():
    lives = {i: Lifetime(i, i + 1, 1000) for i in range(10)}
    assert plan_memory(lives).nbytes == 2 * 1024
