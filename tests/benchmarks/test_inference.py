"""`python -m benchmarks inference`: all ways predict the same; ratios by hand. No clock is read."""

from __future__ import annotations

import importlib.util
import shutil

import numpy as np
import pytest

linked = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler cc")


@linked
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("name", ["tiny", "cnn"])
def test_all_ways_predict_the_same(load, tmp_path, name, rows):
    workload = load("workloads").WORKLOADS[name]
    calls = load("inference").make_calls(workload, rows, 2, str(tmp_path))
    expected = {"predict", "native"}
    if importlib.util.find_spec("onnxruntime") is not None:
        expected.add("onnxruntime")
    assert set(calls) == expected
    results = {way: call() for way, call in calls.items()}
    for way, result in results.items():
        assert result.shape == (rows, workload.classes), way
        np.testing.assert_allclose(result, results["predict"], rtol=1e-4, atol=1e-5)


def test_ways_take_turns_and_the_first_round_does_not_count(load, monkeypatch):
    inference = load("inference")
    order = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    monkeypatch.setattr(inference.time, "sleep", lambda seconds: None)
    times = inference.measure(calls, rounds=2, seconds=0.0)
    assert order == ["a", "a", "b", "b"] * 3
    assert [len(spent) for spent in times.values()] == [2, 2]


def test_ratios_are_to_onnxruntime(load):
    summarize = load("inference").summarize
    results = summarize({"native": [1.0, 3.0, 2.0], "onnxruntime": [5.0, 2.0, 4.0]})
    assert results["native"] == {"median": 2.0, "best": 1.0, "ratio": 0.5, "best ratio": 0.5}
    assert results["onnxruntime"]["ratio"] == 1.0
    assert summarize({"native": [1.0]}) == {"native": {"median": 1.0, "best": 1.0}}


def test_unknown_workloads_list_the_known(load, capsys):
    with pytest.raises(SystemExit) as stop:
        load("inference").main(["--workloads", "mpl"])
    assert stop.value.code == 2
    assert "unknown workload 'mpl'; known: mlp, tiny" in capsys.readouterr().err


@linked
def test_the_table_names_processor_and_ratios(load, capsys):
    main = load("__main__").main
    assert main(["inference", "--workloads", "tiny", "--rounds", "1", "--seconds", "0"]) == 0
    out = capsys.readouterr().out
    assert load("machine").describe_machine()["cpu"] in out.splitlines()[0]
    assert "1 row\n" in out and "256 rows\n" in out
    assert out.count("native") == 2
