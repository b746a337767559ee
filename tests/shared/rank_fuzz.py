"""Random programs whose slots or variables the ranks divide: `rank_fuzz.py FIRST LAST` on ranks.

Each program of the fuzzer is trained on both engines, whose numbers must agree, and then with whole
variables, with divided slots, and with every variable divided, on one engine, which takes turns.
Outputs, logs and weights must have equal bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from fuzz import known
from fuzz.compare import check
from fuzz.generate import program_of
from fuzz.programs import Program
from fuzz.run import EAGER, STATIC, Engine, run

import kerasish as keras
from kerasish.ranks import Sharding, current_group, set_sharding

REFUSED = "more than element by element"  # optimizers that need whole variables


def results(program: Program, engine: Engine, slots: bool, variables: bool) -> dict[str, Any]:
    """Return what a program leaves; {"error": text} where it raises."""
    group = current_group()
    every = (lambda path: True) if variables else None
    set_sharding(Sharding(group, group.size, slots, every))
    keras.utils.clear_session()
    try:
        found = run(program, engine, gradients=False)
    except Exception as error:  # noqa: BLE001 (programs may raise any; all ranks raise it)
        return {"error": f"{type(error).__name__}: {error}"}
    return {name: a for name, a in found.items() if "optimizer[" not in name}


def engines_agree(program: Program) -> list[str]:
    """Return what differs between the engines with whole variables."""
    group = current_group()
    set_sharding(Sharding(group, group.size, False, None))
    verdict = check(program, [STATIC[0]], gradients=False)
    return [f"engines: {verdict.text}"] if verdict.bad else []


def differences(program: Program, engine: Engine) -> tuple[str, list[str]]:
    """Return ("equal", "refused" or "error", texts about what differs)."""
    whole = results(program, engine, False, False)
    texts, state = [], "error" if "error" in whole else "equal"
    for slots, variables in ((True, False), (False, True)):
        found = results(program, engine, slots, variables)
        if REFUSED in str(found.get("error", "")):
            state = "refused"
            continue
        if "error" in whole:
            continue  # what whole variables refuse need not be trained
        for name in sorted(whole.keys() | found.keys()):
            a, b = whole.get(name), found.get(name)
            if a is None or b is None or a.dtype != b.dtype or a.tobytes() != b.tobytes():
                kind = "variables" if variables else "slots"
                where = "" if a is None or b is None else f" {np.size(a)} numbers"
                texts.append(f"{kind}: {name}{where} {found.get('error', '')}")
                break
    return state, texts


def main(first: int, last: int) -> None:
    keras.distribution.initialize(timeout=60)
    group = current_group()
    counts: dict[str, int] = {}
    for seed in range(first, last):
        program = program_of(seed)
        if known.reason(program):
            continue
        state, texts = differences(program, (EAGER, STATIC[0])[seed % 2])
        every = group.gather((state, [*engines_agree(program), *texts]))
        counts[state] = counts.get(state, 0) + 1
        if group.rank == 0:
            for text in dict.fromkeys(t for _, texts in every for t in texts):
                print(f"seed {seed}: {text}", flush=True)
    if group.rank == 0:
        print("programs", *(f"{n} {state}" for state, n in sorted(counts.items())), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
