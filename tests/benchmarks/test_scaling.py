"""The model of latency and bandwidth, and a measurement of sums on two ranks."""

from __future__ import annotations

import pytest
from rank_jobs import needs_mpi

from benchmarks.scaling import Network, fit, predict, run_job, table


def test_sums_of_the_model():
    network = Network(1e-5, 1e9, addition=0.0)
    assert network.ring(8e6, 2) == pytest.approx(network.halving_doubling(8e6, 2))
    assert network.ring(0, 1000) == pytest.approx(1998e-5)
    assert network.halving_doubling(0, 1000) == pytest.approx(20e-5)
    assert network.halving_doubling(1e6, 4) == pytest.approx(4e-5 + 1.5e-3)


def test_predictions():
    network = Network(3e-5, 1.1e9)
    p = predict(network, 0.02, 2.7e6, 1000)
    assert p["plain"] == pytest.approx(0.02 + p["sum"]) and p["overlap"] < p["plain"]
    assert p["overlap"] >= 0.02 and p["buckets"] > 1
    late = predict(network, 0.02, 2.7e6, 1000, jitter=0.01)
    assert late["plain"] - p["plain"] == pytest.approx(0.0002 * 7.4855, rel=1e-3)
    assert predict(Network(1.0, 1e9), 0.02, 1e3, 2)["buckets"] == 1


def test_a_table():
    text = table("mlp", Network(3e-5, 1.1e9), {"seconds": 0.02, "bytes": 2.7e6}, {2: 0.05}, 0.0)
    assert text.splitlines()[0] == "mlp: 20 ms per step on one rank, 2.7 MB of gradients"
    assert text.splitlines()[3].split()[0] == "2" and text.splitlines()[3].endswith("50 ms")
    assert len(text.splitlines()) == 10


@needs_mpi
@pytest.mark.slow
def test_sums_are_measured():
    times = {int(k): v for k, v in run_job(2, "sums", "1", "65536", "1048576").items()}
    assert sorted(times) == [4, 262144, 4194304] and times[4194304] > times[4]
    network = fit(times)
    assert network.latency > 0 and 1e6 < network.bandwidth < 1e13
    step = run_job(2, "step", "tiny")
    assert step["seconds"] > 0 and step["bytes"] > 0
