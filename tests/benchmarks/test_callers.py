"""`python -m benchmarks callers`: counts calls, compares bits; no clock is judged."""

from __future__ import annotations

import pytest


def test_the_table(load, capsys):
    main = load("__main__").main
    given = ["--workloads", "tiny", "--rounds", "1", "--seconds", "0.001", "--callers", "3"]
    assert main(["callers", *given]) == 0
    out = capsys.readouterr().out
    assert "1 rows per call" in out and "3 callers" in out and out.count("tiny") == 1


def test_other_bits_are_an_error(load):
    import numpy as np

    class Model:
        def predict(self, x, batch_size, verbose):
            return x

    x = np.ones((2, 3), "float32")
    callers = load("callers")
    assert callers.run(Model(), x, x.tobytes(), 2, 8).wall > 0
    with pytest.raises(AssertionError, match="2 results differ"):
        callers.run(Model(), x, b"", 2, 8)
