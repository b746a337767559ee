"""Tables: Parquet and CSV files in parts, frames, Arrow and Hugging Face straight into fit."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from dataset_cases import flat

import kerasish as keras
from kerasish.data import Dataset
from kerasish.data.pipeline import DatasetIterator

ROWS = 50
COLUMNS = {
    "a": np.arange(ROWS, dtype="float32"),
    "b": np.arange(ROWS) % 3,
    "c": np.array([f"word {i % 4}" for i in range(ROWS)], object),
    "y": np.arange(ROWS, dtype="float64") / 7,
}


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed")


def arrow_table(arrow, names=("a", "b", "c", "y")):
    return arrow.table({name: COLUMNS[name] for name in names})


@pytest.fixture
def parquet(tmp_path, arrow):
    """Two files, of several groups of rows."""
    import pyarrow.parquet

    table = arrow_table(arrow)
    pyarrow.parquet.write_table(table.slice(0, 33), tmp_path / "0.parquet", row_group_size=7)
    pyarrow.parquet.write_table(table.slice(33), tmp_path / "1.parquet", row_group_size=100)
    return str(tmp_path / "*.parquet")


@pytest.fixture
def csv(tmp_path, arrow):
    import pyarrow.csv

    pyarrow.csv.write_csv(arrow_table(arrow), tmp_path / "x.csv")
    return tmp_path / "x.csv"


def check_rows(data):
    """The rows are those of COLUMNS, and every place can be restored."""
    first = DatasetIterator(data.node)
    rows, places = [], [first.state()]
    for x, y in first:
        rows.append((x["a"].numpy(), x["b"].numpy(), x["c"].numpy(), y.numpy()))
        places.append(first.state())
    assert rows == list(zip(*COLUMNS.values()))
    for at in range(0, ROWS, 7):
        again = DatasetIterator(data.node)
        again.restore(places[at])
        assert [x["a"] for x, _ in again] == COLUMNS["a"][at:].tolist()
    batches = list(data.skip(3).batch(9).as_numpy_iterator())
    assert [len(y) for _, y in batches] == [9, 9, 9, 9, 9, 2]
    np.testing.assert_array_equal(np.concatenate([x["c"] for x, _ in batches]), COLUMNS["c"][3:])


def test_parquet_files(parquet):
    data = Dataset.from_parquet(parquet, label="y")
    assert data.cardinality() == ROWS
    assert data.element_spec[0]["c"].dtype == "string"
    check_rows(data)


def test_csv_files(csv):
    check_rows(Dataset.from_csv(csv, label="y", dtypes={"a": "float32"}))
    assert Dataset.from_csv(csv).element_spec["b"].dtype == "int64"


def test_columns_and_labels(parquet):
    x, y = next(Dataset.from_parquet(parquet, ["a"], label=["y", "b"]).as_numpy_iterator())
    assert list(x) == ["a"] and list(y) == ["y", "b"]
    assert list(next(Dataset.from_parquet(parquet, ["b", "a"]).as_numpy_iterator())) == ["b", "a"]


def test_mistakes_in_files(parquet, tmp_path, arrow):
    import pyarrow.parquet

    with pytest.raises(ValueError, match="there is no column 'z'; the columns are"):
        Dataset.from_parquet(parquet, ["z"])
    with pytest.raises(ValueError, match="there is no file"):
        Dataset.from_csv(tmp_path / "no.csv")
    nested = arrow.table({"a": [[1], [2, 3]], "b": [[1], [2]]})
    pyarrow.parquet.write_table(nested, tmp_path / "nested")
    with pytest.raises(ValueError, match="nested type list"):
        next(iter(Dataset.from_parquet(tmp_path / "nested")))
    equal = Dataset.from_parquet(tmp_path / "nested", ["b"]).batch(2)
    assert next(equal.as_numpy_iterator())["b"].tolist() == [[1], [2]]


def test_gaps_and_vectors(arrow, tmp_path):
    import pyarrow.parquet

    vectors = arrow.FixedSizeListArray.from_arrays(arrow.array(np.arange(6.0)), 2)
    words = arrow.array(["u", "v", "u"]).dictionary_encode()
    table = arrow.table({"n": [1, None, 3], "v": vectors, "w": words})
    pyarrow.parquet.write_table(table, tmp_path / "t")
    batch = next(Dataset.from_parquet(tmp_path / "t").batch(3).as_numpy_iterator())
    np.testing.assert_array_equal(batch["n"], [1, np.nan, 3])
    assert batch["v"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert batch["w"].tolist() == ["u", "v", "u"]


@pytest.mark.slow
def test_files_larger_than_the_memory_that_is_used(tmp_path, arrow):
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    with pyarrow.parquet.ParquetWriter(
        tmp_path / "large", arrow.schema({f"c{i}": arrow.float32() for i in range(20)})
    ) as writer:
        for _ in range(25):
            part = {f"c{i}": rng.normal(size=40_000).astype("float32") for i in range(20)}
            writer.write_table(arrow.table(part), row_group_size=20_000)
    data = Dataset.from_parquet(tmp_path / "large", label="c0").batch(256).prefetch(2)
    tracemalloc.start()
    before = arrow.total_allocated_bytes()
    most = count = 0
    for _ in data.as_numpy_iterator():
        count += 1
        most = max(most, arrow.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == -(-1_000_000 // 256)
    assert peak + most < 20e6  # of 80 MB


# --------------------------------------------------------------------------- straight into fit


def tables():
    def pandas():
        module = pytest.importorskip("pandas", reason="pandas is not installed")
        return module.DataFrame(COLUMNS)

    def polars():
        module = pytest.importorskip("polars", reason="polars is not installed")
        return module.DataFrame({k: v.tolist() for k, v in COLUMNS.items()})

    def hugging_face():
        module = pytest.importorskip("datasets", reason="Hugging Face's datasets is not installed")
        return module.Dataset.from_dict({k: v.tolist() for k, v in COLUMNS.items()})

    def pyarrow():
        return arrow_table(pytest.importorskip("pyarrow", reason="pyarrow is not installed"))

    return {
        "pandas": pandas, "polars": polars, "polars, lazy": lambda: polars().lazy(),
        "pyarrow": pyarrow, "Hugging Face": hugging_face,
    }  # fmt: skip


def named_model(dict_of_inputs):
    a, b = keras.Input((1,), name="a"), keras.Input((1,), name="b")
    output = keras.layers.Dense(1)(keras.layers.Concatenate()([a, b]))
    model = keras.Model({"b": b, "a": a} if dict_of_inputs else [a, b], output)
    model.compile("sgd", "mse")
    model.set_weights([np.array([[0.1], [0.2]]), np.array([0.0])])
    return model


@pytest.mark.parametrize("name", tables())
@pytest.mark.parametrize("dict_of_inputs", [True, False])
def test_tables_for_named_inputs(name, dict_of_inputs):
    table = tables()[name]()
    model = named_model(dict_of_inputs)
    want = COLUMNS["a"] * 0.1 + COLUMNS["b"] * 0.2
    np.testing.assert_allclose(model.predict(table, verbose=0)[:, 0], want, rtol=1e-5)
    loss = model.evaluate(table, COLUMNS["y"], verbose=0)
    np.testing.assert_allclose(loss, ((want - COLUMNS["y"]) ** 2).mean(), rtol=1e-5)
    split = {} if name == "Hugging Face" else {"validation_split": 0.2}
    held_out = (table, COLUMNS["y"])
    history = model.fit(table, COLUMNS["y"], verbose=0, validation_data=None if split else held_out,
                        **split).history  # fmt: skip
    assert np.isfinite([history["loss"], history["val_loss"]]).all()


@pytest.mark.parametrize("name", tables())
def test_datasets_of_tables(name):
    data = Dataset.from_table(tables()[name](), label="y")
    assert [float(y) for _, y in data] == COLUMNS["y"].tolist()
    x, y = next(data.shuffle(ROWS, 1).batch(20).as_numpy_iterator())
    np.testing.assert_allclose(x["a"] / 7, y, rtol=1e-6)
    np.testing.assert_array_equal(x["c"], [f"word {int(a) % 4}" for a in x["a"]])
    assert flat(next(iter(data.batch(4)))) == flat(next(iter(data.take(4).batch(4))))


def test_columns_are_not_copied(arrow):
    frame = tables()["pandas"]()
    x, _ = next(Dataset.from_table(frame, ["y"], ["a"]).batch(4).as_numpy_iterator())
    assert np.shares_memory(x["a"], frame["a"].to_numpy())
    table = arrow_table(arrow)
    x = next(Dataset.from_table(table, columns=["a"]).batch(4).as_numpy_iterator())
    assert np.shares_memory(x["a"], table.column("a").chunk(0).to_numpy())


@pytest.mark.parametrize("name", ["polars, lazy", "pyarrow"])
def test_tables_as_matrices(name):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = tables()[name]()
    table = table.select(["a", "y"])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    plain = np.stack([COLUMNS["a"], COLUMNS["y"]], 1)
    np.testing.assert_array_equal(model.predict(table, verbose=0), model.predict(plain, verbose=0))


def test_columns_of_hugging_face():
    table = tables()["Hugging Face"]()
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    losses = [
        model.evaluate(*data, verbose=0)
        for data in ((table["a"], table["y"]), (COLUMNS["a"], COLUMNS["y"]))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    model.fit(table["a"], table["y"], verbose=0, validation_split=0.2)
    with pytest.raises(ValueError, match=r"x=data\['pixels'\]"):
        model.fit(table, COLUMNS["y"])


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match="there is no column 'z'"):
        Dataset.from_table(tables()["pandas"](), label="z")
    with pytest.raises(TypeError, match="expected a data frame"):
        Dataset.from_table(np.ones(3))
