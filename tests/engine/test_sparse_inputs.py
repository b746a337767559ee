"""Sparse matrices as inputs: Dense multiplies them, other layers get them dense."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

import kerasish as keras
from kerasish import config, layers, ops
from kerasish.engine.data.parts import entries_of
from kerasish.errors import DTypeError, ShapeError
from kerasish.tensor import SparseTensor
from kerasish.wrappers import KerasClassifier, SKLearnClassifier

WIDTH = 3000
X = scipy.sparse.random(90, WIDTH, 0.004, "csr", dtype="float32", random_state=0)
Y = np.arange(90) % 3


def a_model(sparse=True, optimizer="sgd", width=WIDTH):
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.Input((width,), sparse=sparse), layers.Dense(8, "relu"), layers.Dense(3, "softmax")]
    )
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# --- the tensor ---------------------------------------------------------------------------------


def test_a_sparse_tensor_multiplies_and_becomes_dense(engine):
    dense = np.zeros((3, 4), "float32")
    dense[[0, 0, 2], [1, 3, 3]] = [2, 3, 4]
    x = SparseTensor([2.0, 1.0, 2.0, 4.0], [1, 3, 3, 3], [0, 0, 0, 2], (3, 4))
    assert x.ndim == 2 and x.dtype == "float32" and "of 4 entries" in repr(x)
    np.testing.assert_array_equal(x.todense(), dense)
    table = np.arange(8, dtype="float32").reshape(4, 2)
    np.testing.assert_array_equal(x @ table, dense @ table)
    assert x.astype("float16").dtype == "float16"
    with pytest.raises(ShapeError, match=r"by one of shape \(4, columns\)"):
        x @ np.ones((3, 2), "float32")
    with pytest.raises(DTypeError, match="todense"):
        ops.add(x, 1.0)


def test_gradients_are_those_of_the_dense_product(engine):
    dense = X[:4].toarray()[:, :50]
    csr = scipy.sparse.csr_matrix(dense)
    table = np.random.default_rng(0).normal(size=(50, 3)).astype("float32")
    g = np.random.default_rng(1).normal(size=(4, 3)).astype("float32")

    def loss(values, table):
        rows = np.repeat(np.arange(4), np.diff(csr.indptr))
        return ops.sum(SparseTensor(values, csr.indices, rows, csr.shape) @ table * g)

    by_values, by_table = keras.grad(loss, (0, 1))(csr.data, table)
    np.testing.assert_allclose(by_table, dense.T @ g, rtol=1e-5, atol=1e-6)
    expected = (g @ table.T)[csr.nonzero()]
    np.testing.assert_allclose(by_values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 64, 65, 200])
def test_entries_are_padded_by_zeros_at_the_last_place(count):
    csr = scipy.sparse.random(7, 40, count / 280, "csr", random_state=count)
    entries = entries_of(csr.data, csr.indices, csr.indptr, csr.shape)
    assert len(entries.values) == {0: 64, 1: 64, 64: 64, 65: 96, 200: 256}[count]
    assert not entries.values[count:].any()
    got = scipy.sparse.coo_matrix((entries.values, (entries.rows, entries.columns)), csr.shape)
    np.testing.assert_array_equal(got.toarray(), csr.toarray())
    touched = set(csr.indices) or {0}
    assert set(entries.columns.tolist()) == touched


# --- models -------------------------------------------------------------------------------------

KINDS = {
    "csr": lambda x: x, "coo": lambda x: x.tocoo(), "csc": lambda x: x.tocsc(),
    "csr_array": scipy.sparse.csr_array, "coo_array": lambda x: scipy.sparse.coo_array(x),
    "float64": lambda x: x.astype("float64"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_that_on_dense_rows(kind, engine):
    results = []
    for sparse in (True, False):
        model = a_model(sparse, keras.optimizers.SGD(0.5))
        x = KINDS[kind](X) if sparse else X.toarray()
        history = model.fit(x, Y, epochs=2, verbose=0, validation_split=0.2, batch_size=16)
        scores = model.evaluate(x, Y, verbose=0)
        small = model.train_on_batch(x.tocsr()[:4] if sparse else x[:4], Y[:4])
        ends = [w.numpy() for w in model.weights]
        outputs = [model.predict(x, verbose=0), model.predict_on_batch(x)]
        results.append([*history.history.values(), scores, small, *outputs, *ends])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "rmsprop"])
def test_optimizers_update_as_for_dense_rows(optimizer, engine):
    ends = []
    for sparse in (True, False):
        model = a_model(sparse, optimizer)
        model.fit(X if sparse else X.toarray(), Y, epochs=2, verbose=0, shuffle=False)
        ends.append([w.numpy() for w in model.weights])
    for a, b in zip(*ends):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_only_the_rows_of_the_kernel_that_occur_are_updated(monkeypatch):
    before = config.backend()
    config.set_backend("static")
    try:
        model = a_model()
        kernel = model.layers[0].kernel
        start = kernel.numpy().copy()
        model.fit(X, Y, verbose=0)
    finally:
        config.set_backend(before)
    changed = np.flatnonzero((kernel.numpy() != start).any(1))
    assert set(changed) <= set(X.indices.tolist()) and len(changed) > 100
    graphs = dict(model.training_program.step("train").graphs())
    optimized = list(graphs.values())[-1]
    assert "sparse_update" in [node.op.name for node in optimized.nodes]


def test_few_programs_compile(capsys):
    before = config.backend()
    config.set_backend("static")
    config.explain_compiles(True)
    try:
        model = a_model()
        model.fit(X, Y, batch_size=15, epochs=6, verbose=0)
    finally:
        config.explain_compiles(False)
        config.set_backend(before)
    printed = capsys.readouterr()
    compiled = [s for s in (printed.out + printed.err).splitlines() if "train sequential" in s]
    assert 1 <= len(compiled) <= 3, compiled


def test_sparse_and_dense_inputs_together_by_name(engine):
    a, b = keras.Input((WIDTH,), sparse=True, name="a"), keras.Input((2,), name="b")
    both = layers.Concatenate()([layers.Dense(4)(a), b])
    model = keras.Model([a, b], layers.Dense(1)(both))
    model.compile("sgd", "mse")
    more = np.ones((90, 2), "float32")
    named = {"b": more, "a": X}
    model.fit(named, Y, verbose=0)
    expected = model.predict([X.toarray(), more], verbose=0)
    np.testing.assert_allclose(model.predict(named, verbose=0), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model.predict((X, more), verbose=0), expected, rtol=1e-4, atol=1e-6)


def test_other_layers_make_it_dense_and_say_so(engine):
    model = keras.Sequential(
        [keras.Input((WIDTH,), sparse=True), layers.LayerNormalization(), layers.Dense(3)]
    )
    with pytest.warns(UserWarning, match="makes its sparse input of shape .* dense"):
        got = model.predict(X, verbose=0)
    expected = model.predict(X.toarray(), verbose=0)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_layer_of_the_users_gets_it_sparse(engine):
    class Weighted(layers.Layer):
        def build(self, shape):
            self.w = self.add_weight(shape=(shape[-1], 2))

        def call(self, x):
            return x @ self.w

    model = keras.Sequential([keras.Input((WIDTH,), sparse=True), Weighted()])
    got = model.predict(X, verbose=0)
    np.testing.assert_allclose(got, X @ model.layers[0].w.numpy(), rtol=1e-5, atol=1e-6)


def test_mixed_precision_and_lora(engine):
    dense = layers.Dense(4, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((WIDTH,), sparse=True), dense])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        got = model.predict(X, verbose=0)
    np.testing.assert_allclose(got, X @ dense.kernel.numpy(), rtol=1e-2, atol=1e-2)
    model = keras.Sequential([keras.Input((WIDTH,), sparse=True), layers.Dense(4, lora_rank=2)])
    model.compile("sgd", "mse")
    model.fit(X, np.ones((90, 4)), verbose=0)
    expected = model.predict(X.toarray(), verbose=0)
    np.testing.assert_allclose(model.predict(X, verbose=0), expected, rtol=1e-4, atol=1e-5)


def test_the_config_and_the_file_say_that_an_input_is_sparse(tmp_path):
    model = a_model()
    assert model.inputs[0].sparse and model.get_config()["layers"][0]["config"]["sparse"]
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.inputs[0].sparse
    np.testing.assert_allclose(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    with pytest.raises(ShapeError, match="a sparse input is a matrix"):
        keras.Input((2, 3), sparse=True)


def test_a_pipeline_of_scikit_learn_stays_sparse():
    texts = [f"word{i % 7} word{i % 3} word{i}" for i in range(60)]
    labels = np.arange(60) % 3

    def build(meta):
        return a_model(optimizer=keras.optimizers.Adam(0.05), width=meta["n_features_in_"])

    classifier = KerasClassifier(build, epochs=15, verbose=0)
    pipeline = make_pipeline(TfidfVectorizer(), classifier).fit(texts, labels)
    assert pipeline.score(texts, labels) > 0.9
    assert classifier.model_.inputs[0].sparse


@pytest.mark.parametrize("estimator", [KerasClassifier, SKLearnClassifier])
def test_estimators_give_sparse_rows_to_sparse_inputs(estimator, monkeypatch):
    seen = []
    taken = SparseTensor.__matmul__
    monkeypatch.setattr(
        SparseTensor, "__matmul__", lambda x, w: seen.append(x.shape) or taken(x, w)
    )

    def build(X, y):
        model = a_model(width=X.shape[1])
        model.compile("sgd", "categorical_crossentropy")
        return model

    if estimator is KerasClassifier:
        own = KerasClassifier(lambda: a_model(), verbose=0)
    else:
        own = SKLearnClassifier(build)
    own.fit(X.astype("float64"), Y).predict(X)
    assert seen and {width for _, width in seen} == {WIDTH}


def test_data_parallel_training_computes_sparse_batches_whole(engine):
    ends = []
    for shards in (1, 3):
        model = a_model()
        with keras.distribution.DataParallel(shards=shards).scope():
            model.fit(X, Y, verbose=0, shuffle=False)
            ends.append(model.predict(X, verbose=0))
    np.testing.assert_allclose(*ends, rtol=1e-4, atol=1e-6)


def test_a_step_holds_each_weight_once_and_its_shape_is_read_without_a_copy():
    before = config.backend()
    config.set_backend("static")
    try:
        model = a_model(width=20_000)
        kernel = model.layers[0].kernel
        size = 4 * kernel.size
        x = scipy.sparse.random(40, 20_000, 0.001, "csr", dtype="float32", random_state=0)
        model.fit(x, Y[:40], verbose=0)
        tracemalloc.start()
        try:
            assert (kernel.shape, kernel.dtype, kernel.ndim) == ((20_000, 8), "float32", 2)
            assert tracemalloc.get_traced_memory()[1] < size / 4
            model.fit(x[:20], Y[:20], verbose=0)  # compiles a step of another shape
            assert tracemalloc.get_traced_memory()[0] < size * 0.9
        finally:
            tracemalloc.stop()
    finally:
        config.set_backend(before)
