"""Reinforcement learning: Q-learning in a maze
============================================

Define-by-run: a small robot learns the way through a maze, by trial and error.

No model, no compile, no fit: tensors, a loss, backward(), and an optimizer. Every step is plain
Python, with its ifs and loops, and could be stopped with pdb. The network guesses, for a place and
each of four moves, how much reward is still to come; the robot mostly does what looks best.
(Watkins, Learning from Delayed Rewards, 1989; Mnih et al., Playing Atari, 2013, for the memory.)
Shows: Variables, ops, backward, no_gradient, optimizers by themselves.

Run: python examples/q_learning.py [picture.png]
"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np

try:
    from matplotlib import pyplot as plt
except ImportError:
    sys.exit("This example draws a picture: pip install matplotlib")

import kerasish as keras
from kerasish import ops

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
DISCOUNT = 0.95
GAMES, MOST = 120, 200

rng = np.random.default_rng(0)


def act(place: tuple[int, int], move: int) -> tuple[tuple[int, int], float, bool]:
    """Return (the place after a move, the reward, whether the goal is reached)."""
    row, column = place[0] + MOVES[move][0], place[1] + MOVES[move][1]
    inside = 0 <= row < SIZE and 0 <= column < SIZE
    if not inside or WALL[row, column]:
        return place, -0.3, False  # that hurt
    return (row, column), (1.0 if (row, column) == GOAL else -0.02), (row, column) == GOAL


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


def play(network: Network, curiosity: float, after_move=None) -> int:
    """Walk until the goal, or MOST moves; return how many it took."""
    place = START
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


def draw(network: Network, lengths: list[int], picture: str) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    games = np.arange(1, len(lengths) + 1)
    left.plot(games, lengths, ".", color="gray", label="one game")
    means = np.convolve(lengths, np.ones(15) / 15, "valid")
    left.plot(games[14:], means, label="mean of the last 15")
    left.set(title="Moves to the goal", xlabel="game", ylabel="moves")
    left.legend()
    places = [(r, c) for r in range(SIZE) for c in range(SIZE)]
    guesses = network(places).numpy().reshape(SIZE, SIZE, 4)
    worth = np.where(WALL, np.nan, guesses.max(-1))
    worth[GOAL] = np.nan  # nobody moves on from there
    shown = right.imshow(worth, cmap="viridis")
    right.set_facecolor("black")  # walls
    figure.colorbar(shown, ax=right, label="expected reward")
    for r, c in places:
        if not WALL[r, c] and (r, c) != GOAL:
            down, across = MOVES[guesses[r, c].argmax()]
            right.arrow(c - 0.25 * across, r - 0.25 * down, 0.3 * across, 0.3 * down,
                        head_width=0.18, color="white")  # fmt: skip
    right.text(GOAL[1], GOAL[0], "goal", ha="center", va="center", color="white")
    right.set(title="Expected reward, and the best move", xticks=[], yticks=[])
    figure.savefig(picture, dpi=110)


def main(picture: str = "q_learning.png") -> None:
    keras.utils.set_random_seed(0)
    network, slow, optimizer = Network(), Network(), keras.optimizers.Adam(0.003)
    memory: deque = deque(maxlen=4000)
    losses: list[float] = []
    moves = 0

    def remember(move: tuple) -> None:
        nonlocal moves
        memory.append(move)
        moves += 1
        if moves % 4 == 0:
            losses.append(learn(network, slow, optimizer, memory))
        if moves % 200 == 0:
            slow.become(network)

    lengths = []
    for game in range(1, GAMES + 1):
        lengths.append(play(network, max(0.05, 1 - game / 40), remember))
        if game % 20 == 0:
            print(f"games {game - 19:>3} to {game:>3}: {np.mean(lengths[-20:]):5.1f} moves on "
                  f"average, loss {np.mean(losses[-200:]):.4f}")  # fmt: skip
    print(f"now, doing what looks best: {play(network, curiosity=0.0)} moves; 14 is the fewest")
    draw(network, lengths, picture)
    print(f"picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
