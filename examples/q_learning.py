"""Reinforcement learning: Q-learning in a maze
============================================

Define-by-run: a small robot learns the way through a maze, by trial and error.

No model, no compile, no fit: tensors, a loss, backward(), and an optimizer. Each game starts at a
random place, so that the robot gets to know the whole maze. Every step is plain
Python, with its ifs and loops, and could be stopped with pdb. The network guesses, for a place and
each of four moves, the future reward; the robot mostly does what looks best.
(Watkins, Learning from Delayed Rewards, 1989; Mnih et al., Playing Atari, 2013, for the memory.)
Shows: Variables, ops, backward, no_gradient, optimizers by themselves.

Run: python examples/q_learning.py [picture.png]
"""

from __future__ import annotations

import itertools
import sys
from collections import deque

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import ops

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)

# %%
# The maze
# --------
# A move into a wall hurts, every other one costs a little, the goal is the reward. The fewest moves
# from each place are what the robot is compared with; it does not know them.

MAZE = """
S..#....
.#.#.##.
.#...#..
.####.#.
......#.
.##.#...
.#..#.#.
...##.#G
""".split()
SIZE = len(MAZE)
WALL = np.array([[c == "#" for c in row] for row in MAZE])
START, GOAL = (0, 0), (7, 7)
MOVES = [(-1, 0), (0, 1), (1, 0), (0, -1)]


def act(place: tuple[int, int], move: int) -> tuple[tuple[int, int], float, bool]:
    """Return (the place after a move, the reward, whether the goal is reached)."""
    row, column = place[0] + MOVES[move][0], place[1] + MOVES[move][1]
    inside = 0 <= row < SIZE and 0 <= column < SIZE
    if not inside or WALL[row, column]:
        return place, -0.3, False  # that hurt
    return (row, column), (1.0 if (row, column) == GOAL else -0.02), (row, column) == GOAL


def count_moves() -> dict[tuple[int, int], int]:
    """Return for each free place the fewest moves to the goal (breadth-first search)."""
    fewest, queue = {GOAL: 0}, deque([GOAL])
    while queue:
        row, column = queue.popleft()
        for down, across in MOVES:
            place = row + down, column + across
            inside = 0 <= place[0] < SIZE and 0 <= place[1] < SIZE
            if inside and not WALL[place] and place not in fewest:
                fewest[place] = fewest[row, column] + 1
                queue.append(place)
    return fewest


FEWEST = count_moves()

# %%
# The network
# -----------
# Two layers by hand, of variables and ops. It sees the number of a place and guesses, for each
# move, the reward that is still to come.


def see(places: list[tuple[int, int]]) -> np.ndarray:
    """Return what the network sees: a 1 at the place's number."""
    return np.eye(SIZE * SIZE, dtype="float32")[[r * SIZE + c for r, c in places]]


class Network:
    """Two layers by hand: relu(x @ a + b) @ c + d."""

    def __init__(self, units: int = 64) -> None:
        def near_zero(*shape: int) -> keras.Variable:
            return keras.Variable(rng.normal(scale=0.1, size=shape).astype("float32"))

        self.a, self.b = near_zero(SIZE * SIZE, units), near_zero(units)
        self.c, self.d = near_zero(units, 4), near_zero(4)
        self.variables = [self.a, self.b, self.c, self.d]

    def become(self, other: Network) -> None:
        for mine, its in zip(self.variables, other.variables):
            mine.assign(its.value)

    def __call__(self, places: list[tuple[int, int]]):
        hidden = ops.relu(see(places) @ self.a + self.b)
        return hidden @ self.c + self.d


# %%
# Learning from memory
# --------------------
# What a move is worth is its reward, and a little less than the best guess for the place after it.

DISCOUNT = 0.95


def learn(network: Network, slow: Network, optimizer, memory: deque) -> float:
    """Make the guesses for some remembered moves fit what came of them.

    `slow` is an older copy of the network: guesses that chase themselves would swing up and down.
    """
    chosen = [memory[i] for i in rng.integers(len(memory), size=32)]
    places, moves, rewards, nexts, ends = zip(*chosen)
    with keras.no_gradient():
        best = slow(list(nexts)).numpy().max(axis=1)
    target = np.array(rewards) + DISCOUNT * best * ~np.array(ends)
    guessed = ops.sum(network(list(places)) * np.eye(4, dtype="float32")[list(moves)], axis=1)
    loss = ops.mean(ops.square(guessed - target.astype("float32")))
    loss.backward()
    optimizer.apply_gradients([(v.grad, v) for v in network.variables])
    for v in network.variables:
        v.grad = None
    return float(loss)


# %%
# Playing
# -------
# The robot mostly does what looks best; at first it often tries something else.

GAMES, MOST = 250, 200


def play(network: Network, curiosity: float, place: tuple[int, int], after_move=None) -> int:
    """Walk from a place to the goal, or MOST moves; return how many it took."""
    for count in range(1, MOST + 1):
        if rng.random() < curiosity:
            move = int(rng.integers(4))
        else:
            with keras.no_gradient():
                move = int(network([place]).numpy().argmax())
        after, reward, done = act(place, move)
        if after_move is not None:
            after_move((place, move, reward, after, done))
        place = after
        if done:
            return count
    return MOST


network, slow, optimizer = Network(), Network(), keras.optimizers.Adam(0.003)
memory: deque = deque(maxlen=4000)
losses: list[float] = []
moves = itertools.count(1)


def remember(move: tuple) -> None:
    """Keep a move; learn after every fourth one."""
    memory.append(move)
    number = next(moves)
    if number % 4 == 0:
        losses.append(learn(network, slow, optimizer, memory))
    if number % 200 == 0:
        slow.become(network)


free = [place for place in FEWEST if place != GOAL]
detours = []
for game in range(1, GAMES + 1):
    place = free[rng.integers(len(free))]
    detours.append(play(network, max(0.1, 1 - game / 80), place, remember) - FEWEST[place])
    if game % 50 == 0:
        print(f"games {game - 49:>3} to {game:>3}: {np.mean(detours[-50:]):5.1f} moves too many, "
              f"loss {np.mean(losses[-200:]):.4f}")  # fmt: skip

taken = {place: play(network, 0.0, place) for place in free}
shortest = np.mean([taken[place] == FEWEST[place] for place in free])
print(f"now, doing what looks best: {taken[START]} moves; {FEWEST[START]} is the fewest")
print(f"places from which it takes a shortest way: {shortest:.2f}")

# %%
# What it has learned
# -------------------
# On the left, how many moves too many each game took. On the right, the reward that the network
# expects from each place, and the move that looks best there.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
games = np.arange(1, len(detours) + 1)
left.plot(games, detours, ".", color="gray", label="one game")
means = np.convolve(detours, np.ones(15) / 15, "valid")
left.plot(games[7:-7], means, label="mean of 15 games around it")
left.set(title="Moves beyond the fewest possible", xlabel="game", ylabel="moves",
         ylim=(0, None))  # fmt: skip
left.legend()
places = [(r, c) for r in range(SIZE) for c in range(SIZE)]
guesses = network(places).numpy().reshape(SIZE, SIZE, 4)
expected = np.where(WALL, np.nan, guesses.max(-1))
expected[GOAL] = np.nan  # the end of the way
shown = right.imshow(expected, cmap="YlGn", vmin=0, vmax=1.1)
right.set_facecolor("0.35")  # walls
figure.colorbar(shown, ax=right, label="expected reward")
for r, c in places:
    if not WALL[r, c] and (r, c) != GOAL:
        down, across = MOVES[guesses[r, c].argmax()]
        right.arrow(c - 0.25 * across, r - 0.25 * down, 0.3 * across, 0.3 * down,
                    head_width=0.18, color="black")  # fmt: skip
right.add_patch(plt.Rectangle((GOAL[1] - 0.5, GOAL[0] - 0.5), 1, 1, color="gold"))
right.text(GOAL[1], GOAL[0], "goal", ha="center", va="center")
right.set(title="Expected reward, and the best move", xticks=[], yticks=[])

picture = sys.argv[1] if len(sys.argv) > 1 else "q_learning.png"
figure.savefig(picture, dpi=110)
print(f"picture: {picture}")
