"""Random training programs on the engine of a GPU, whose kernels run on the CPU.

The programs are those of `tests/test_fuzz_programs.py`: `KERASISH_FUZZ=200` tries more seeds, and
`KERASISH_FUZZ_START` others.
"""

from __future__ import annotations

import os

import fake_cupy
import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER
from fuzz import compare, known
from fuzz.generate import program_of
from fuzz.run import Engine
from fuzz.run import run as run_on

import kerasish
from kerasish.backends.eager.cuda import blas

COUNT = int(os.environ.get("KERASISH_FUZZ", "12"))
START = int(os.environ.get("KERASISH_FUZZ_START", "0"))
GPU = Engine("GPU", "eager")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER),
]


@pytest.mark.parametrize("seed", range(START, START + COUNT))
def test_a_gpu_trains_as_the_cpu_does(monkeypatch, cublaslt_on_cpu, seed):
    """With cuBLASLt for every second seed; launches show that the GPU's engine did the work."""
    program = program_of(seed)
    reason = known.reason(program)
    if reason:
        pytest.skip(f"known, and not fixed yet: {reason}")
    cublaslt_on_cpu.stub_fail(0)
    launched = []

    def run(program, engine, *options):
        if engine is not GPU:
            return run_on(program, engine, *options)
        with pytest.MonkeyPatch.context() as patch, fake_cupy.installed(patch):
            patch.setattr(blas, "library", lambda version: cublaslt_on_cpu if seed % 2 else None)
            with kerasish.device("gpu"):
                try:
                    return run_on(program, engine, *options)
                finally:
                    launched.append(sum(fake_cupy.work.launches.values()))

    monkeypatch.setattr(compare, "run", run)
    verdict = compare.check(program, [GPU], gradients=False)
    assert not verdict.bad, f"{verdict.kind}: {verdict.text}"
    assert verdict.kind == "refused" or max(launched) > 20
