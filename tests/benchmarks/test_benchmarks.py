"""The benchmark package: counts, ratios, errors and the protocol. No test reads a clock."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest

import kerasish

ROOT = Path(__file__).resolve().parents[2]
PARAMETERS = {
    "mlp": 669_706,
    "tiny": 1_794,
    "cnn": 34_826,
    "resnet20": 272_474,
    "lstm": 1_411_842,
    "transformer": 1_684_994,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_every_workload_is_the_model_that_is_counted(load, name):
    workload = load("workloads").WORKLOADS[name]
    counted = load("counts").count_step(name, workload.batch, workload.shape)
    model = workload.build(kerasish)
    trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    assert trained == counted.parameters == PARAMETERS[name]
    x, y = load("workloads").make_data(workload, 2)
    assert model(x).shape == (2, workload.classes)
    assert y.max() < workload.classes


def test_flops_of_a_step_by_hand(load):
    forward = 2 * 128 * np.array([784 * 512, 512 * 512, 512 * 10])
    by_hand = int(forward @ [2, 3, 3]) + 12 * PARAMETERS["mlp"]
    assert load("counts").count_step("mlp", 128, (784,)).flops == by_hand


@pytest.mark.parametrize("name", ["mlp", "cnn", "lstm", "transformer"])
def test_the_trace_of_a_step_has_the_counted_work(load, name):
    workload = load("workloads").WORKLOADS[name]
    counted = load("counts").count_step(name, workload.batch, workload.shape)
    traced = load("counts").trace_step(workload)
    assert traced.parameters == counted.parameters
    # More by element-wise operations, less by rows of an embedding that Adam leaves as they are.
    assert 0.99 * counted.flops <= traced.flops <= 1.05 * counted.flops


def test_parity_harness_trains_and_notices_nan(load):
    parity = load("parity")
    losses = parity.train(kerasish, "mlp", "adam")
    assert len(losses) == parity.STEPS
    assert parity.largest_difference(losses, losses) == 0
    assert parity.largest_difference(losses, [*losses[:-1], float("nan")]) == math.inf
    assert parity.largest_difference([4.0], [4.1]) == pytest.approx(0.025)


def _record(*steps: float) -> dict:
    return {"step": {"best": min(steps), "median": sorted(steps)[1], "values": list(steps)}}


def test_ratios_are_to_the_fastest_of_each_kind(load):
    records = {
        "kerasish": _record(1.0, 2.0, 4.0),
        "keras-jax": _record(4.0, 8.0, 16.0),
        "keras-torch": _record(5.0, 5.0, 5.0),
        "torch": {"failure": "died"},
    }
    ratios = load("report").compare_with_best(records)
    assert set(ratios) == {"kerasish"}
    assert set(ratios["kerasish"]) == {"keras"}
    ratio = ratios["kerasish"]["keras"]
    assert (ratio["peer"], ratio["best"], ratio["median"], ratio["paired"]) == (
        "keras-jax", 0.25, 0.25, 0.25,
    )  # fmt: skip


def test_unknown_names_list_the_known(load, capsys):
    with pytest.raises(SystemExit) as stop:
        load("compare").main(["--workloads", "mpl"])
    assert stop.value.code == 2
    assert "unknown workload 'mpl'; known: mlp, tiny" in capsys.readouterr().err


def test_gpu_is_refused_where_there_is_none(load, capsys, monkeypatch):
    monkeypatch.setattr(load("compare"), "count_gpus", lambda: 0)
    with pytest.raises(SystemExit) as stop:
        load("compare").main(["--gpu"])
    assert stop.value.code == 2
    assert "offers no device" in capsys.readouterr().err


def test_a_peer_that_dies_drops_out_with_its_last_words(load):
    workloads, rounds = load("workloads"), load("rounds")
    lost = workloads.Workload("lost", 2, (3,), 2, 1, workloads.build_tiny, "no such workload")
    reported: list[str] = []
    peers = [load("peers").PEERS["kerasish"]]
    measured = rounds.compare(lost, peers, rounds.Plan(rounds=1), reported.append)["kerasish"]
    assert "exit status 1" in measured.failure
    assert "KeyError: 'lost'" in measured.detail
    assert any("drops out" in line for line in reported)


@pytest.mark.slow
def test_a_run_from_end_to_end(load, tmp_path, capsys):
    target = tmp_path / "run.json"
    arguments = ["--workloads=tiny", "--peers=kerasish,kerasish-eager", "--rounds=2", "--steps=4"]
    assert load("compare").main([*arguments, "--step-time", f"--json={target}", "--quiet"]) == 0
    records = importlib.import_module("json").loads(target.read_text())["workloads"]["tiny"][
        "peers"
    ]
    assert set(records) == {"kerasish", "kerasish-eager"}
    for record in records.values():
        assert record["parameters"] == PARAMETERS["tiny"]
        assert len(record["step"]["values"]) == 2
        assert all(math.isfinite(loss) for loss in record["loss"])
        assert record["memory"]["peak_bytes"] > 10_000_000
    assert "kerasish-eager" in capsys.readouterr().out
