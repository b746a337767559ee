"""The code of docs/guides/data.md runs, block after block."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "data.md"


def test_the_code_of_the_guide(tmp_path, monkeypatch, capsys):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    import pyarrow.csv
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    numbers = np.arange(9.0)
    table = arrow.table({"age": numbers, "income": numbers, "bought": numbers})
    pyarrow.parquet.write_table(table, "part-0.parquet")
    pyarrow.csv.write_csv(table, "clients.csv")
    names: dict = {}
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert len(blocks) > 6
    for block in blocks:
        exec(block, names)
    assert "Epoch 3/3" in capsys.readouterr().out
    place, left = names["place"], list(names["again"])
    assert place["pass"] >= 0 and len(left) == 24
    names["iterator"].close()
    x, y = next(names["batches"].as_numpy_iterator())
    np.testing.assert_array_equal(x["age"], y)
    names.clear()  # functions in it refer to it: it would keep iterators with threads alive
