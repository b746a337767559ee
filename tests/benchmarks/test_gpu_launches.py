"""What a training step hands to a GPU, counted without one: launches, allocations, bytes."""

from __future__ import annotations

import dry_gpu
import pytest
from cuda_on_cpu import COMPILER, NO_COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

# Of a step of two rows with Adam and accuracy, with cuBLASLt and cuDNN there. The workload's own
# batch takes the transformer one more, which merges sorted rows: 110.
MOST = {"mlp": 25, "tiny": 25, "cnn": 40, "lstm": 200, "transformer": 109, "resnet20": 330}
SLOW = ("lstm", "transformer", "resnet20")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in MOST]
)
def test_a_step_takes_few_launches(load, monkeypatch, name):
    workload = load("workloads").WORKLOADS[name]
    with dry_gpu.installed(monkeypatch):
        counts = dry_gpu.workload_step(workload, batch=2)
    assert counts.total <= MOST[name], counts.launches
    # Nothing is cast that is what it should be, and zeros are written only for add_rows.
    assert counts.launches["astype"] == 0
    assert counts.launches["zeros"] + counts.launches["full"] <= 5
    if name == "transformer":
        # Heads are moved by four launches a block; nothing copies what is in another order.
        assert counts.launches["copy"] + counts.launches["reshape"] == 0, counts.launches
        # x + y before a normalization, the two embeddings, the optimizer's count of steps: all
        # gradients that meet are added inside products.
        assert counts.launches["add"] == 6, counts.launches


def test_the_command_prints_a_line_for_each_workload(load, capsys):
    command = load("gpu_launches")
    assert command.main(["--workloads", "tiny,mlp", "--batch", "2", "--names"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["workload", "launches"]
    table = {line.split()[0]: line.split() for line in lines if not line.startswith(" ")}
    assert set(table) == {"workload", "tiny", "mlp"}
    assert all(float(v) > 0 for v in table["mlp"][1:])
    assert any("adam_update" in line for line in lines)
