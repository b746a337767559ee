"""Folded functions: one Python function for many trees, lists and graphs, equal to one by one."""

import sys
import threading
import warnings

import numpy as np
import pytest

import kerasish as keras
from kerasish import config, layers, losses, ops
from kerasish.autodiff.reverse import gradients_of
from kerasish.fold import Folded, Structures

UNITS = 6


@keras.saving.register_keras_serializable("test_fold")
class TreeCell(layers.Layer):
    """An LSTM over two children."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.gates = layers.Dense(5 * units)

    def call(self, left, right):
        (h1, c1), (h2, c2) = left, right
        gates = self.gates(ops.concatenate([h1, h2], axis=-1))
        i, f1, f2, o, u = ops.split(gates, 5, axis=-1)
        c = ops.sigmoid(i) * ops.tanh(u) + ops.sigmoid(f1) * c1 + ops.sigmoid(f2) * c2
        return ops.sigmoid(o) * ops.tanh(c), c


@keras.saving.register_keras_serializable("test_fold")
class TreeNet(Folded):
    """States of binary trees of word numbers."""

    def __init__(self, units=UNITS, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.word, self.cell = layers.Embedding(20, units), TreeCell(units)

    def visit(self, tree):
        return self.state(tree)[0]

    def state(self, tree):
        if isinstance(tree, int):
            word = self.word(tree)
            return word, ops.tanh(word) * 0.5
        return self.cell(self.state(tree[0]), self.state(tree[1]))


def random_tree(rng, leaves):
    if leaves == 1:
        return int(rng.integers(20))
    left = int(rng.integers(1, leaves))
    return (random_tree(rng, left), random_tree(rng, leaves - left))


def random_trees(count, seed=0, most=9):
    rng = np.random.default_rng(seed)
    return [random_tree(rng, int(rng.integers(1, most))) for _ in range(count)]


def first_word(tree):
    return tree if isinstance(tree, int) else first_word(tree[0])


def model_of(net, **options):
    model = keras.Sequential([net, layers.Dense(2)])
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, metrics=["accuracy"], **options)
    return model


def slopes(folded, result):
    return [g.numpy() for g in gradients_of(ops.sum(result * result), folded.trainable_variables)]


def test_results_and_gradients_equal_those_one_by_one():
    net, trees = TreeNet(), [*random_trees(30), 3, (1, 1), 3]
    whole, single = net(trees), net.one_by_one(trees)
    np.testing.assert_allclose(whole.numpy(), single.numpy(), atol=1e-6)
    expected = slopes(net, single)
    for g, e in zip(slopes(net, whole), expected):
        np.testing.assert_allclose(g, e, atol=1e-5)
    compiled = keras.function(lambda packed: gradients_of(ops.sum(net(packed) ** 2), variables))
    variables = net.trainable_variables
    for g, e in zip(compiled(net.pack(trees)), expected):
        np.testing.assert_allclose(g.numpy(), e, atol=1e-5)


def test_a_step_of_fit_changes_the_weights_as_one_by_one_does(engine):
    keras.utils.set_random_seed(0)
    trees, y = random_trees(24, seed=1), np.arange(24) % 2
    model = model_of(TreeNet())
    model(trees[:1])
    net, top = model.layers
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)(y, top(net.one_by_one(trees)))
    expected = gradients_of(loss, model.trainable_variables)
    model.compile(keras.optimizers.SGD(0.5), model.loss)
    before = [v.numpy() for v in model.trainable_variables]
    history = model.fit(trees, y, batch_size=24, epochs=1, verbose=0)
    assert abs(history.history["loss"][0] - float(loss)) < 1e-5
    for v, b, g in zip(model.trainable_variables, before, expected):
        np.testing.assert_allclose((b - v.numpy()) / 0.5, g.numpy(), atol=1e-5)


def test_fit_evaluate_predict(engine):
    keras.utils.set_random_seed(1)
    trees = random_trees(96, seed=2)
    y = np.array([first_word(t) % 2 for t in trees])
    model = model_of(TreeNet())
    history = model.fit(
        trees, y, batch_size=32, epochs=12, verbose=0, validation_split=0.25,
        sample_weight=np.ones(96, "float32"), class_weight={0: 1.0, 1: 1.0},
    )  # fmt: skip
    assert history.history["accuracy"][-1] > 0.9 > history.history["accuracy"][0]
    assert len(history.history["val_loss"]) == 12
    scores = model.evaluate(trees[:50], y[:50], batch_size=16, verbose=0, return_dict=True)
    predicted = model.predict(trees[:50], batch_size=16, verbose=0)
    assert scores["accuracy"] == np.mean(predicted.argmax(1) == y[:50])
    np.testing.assert_allclose(model(trees[:50]).numpy(), predicted, atol=1e-5)
    np.testing.assert_allclose(model.predict_on_batch(trees[:50]), predicted, atol=1e-5)
    assert np.isfinite(model.train_on_batch(trees[:5], y[:5], return_dict=True)["loss"])
    assert np.isfinite(model.test_on_batch(trees[:5], y[:5], return_dict=True)["loss"])


def test_the_engines_train_alike():
    logs = {}
    for backend in ("static", "eager"):
        before = config.backend()
        config.set_backend(backend)
        try:
            keras.utils.set_random_seed(3)
            trees = random_trees(40, seed=3)
            model = model_of(TreeNet())
            y = np.array([first_word(t) % 2 for t in trees])
            logs[backend] = model.fit(trees, y, batch_size=16, epochs=3, verbose=0).history["loss"]
        finally:
            config.set_backend(before)
    np.testing.assert_allclose(logs["static"], logs["eager"], rtol=1e-5)


def test_weights_that_a_batch_does_not_use_get_zero_gradients(monkeypatch):
    """Momentum moves them on, on both engines, whichever batches there are."""
    trees = [(1, 2), (3, (4, 5)), 6, 7, (8, 9), 10, 11, 12]
    results = {}
    for name in ("static", "eager"):
        config.set_backend(name)
        keras.utils.set_random_seed(0)
        model = keras.Sequential([TreeNet(), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "mse")
        y = np.linspace(-1, 1, len(trees))[:, None]
        model.fit(Structures(trees), y, batch_size=2, epochs=2, shuffle=False, verbose=0)
        results[name] = model.get_weights()
    for a, b in zip(*results.values(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_what_a_batch_does_not_use_assigns_nothing():
    class Normed(Folded):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.word, self.norm = layers.Embedding(9, 3), layers.BatchNormalization()
            self.drop = layers.Dropout(0.5, seed=1)

        def visit(self, tree):
            return (
                self.word(tree)
                if isinstance(tree, int)
                else self.norm(self.drop(self.word(tree[0])))
            )

    config.set_backend("eager")
    model = keras.Sequential([Normed(), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
    model.train_on_batch(Structures([(1,), (2,)]), np.zeros((2, 1)))
    before = [v.numpy() for v in model.non_trainable_variables]
    model.train_on_batch(Structures([1, 2]), np.zeros((2, 1)))
    for a, v in zip(before, model.non_trainable_variables, strict=True):
        np.testing.assert_array_equal(a, v.numpy(), err_msg=v.path)


def test_sample_weights_count_and_shuffling_keeps_rows_together():
    trees, y = random_trees(20, seed=4), np.arange(20) % 2
    model = model_of(TreeNet())
    weights = np.zeros(20, "float32")
    weights[3] = 1.0
    alone = model.evaluate(trees[3:4], y[3:4], verbose=0, return_dict=True)["loss"]
    loss = model.evaluate(
        trees, y, sample_weight=weights, batch_size=20, verbose=0, return_dict=True
    )["loss"]
    assert abs(loss * 20 - alone) < 1e-4 or abs(loss - alone) < 1e-5
    column = Structures(trees)
    order = np.array([5, 1, 7])
    assert list(column[order]) == [trees[5], trees[1], trees[7]]


def test_many_batches_run_few_programs():
    trees = random_trees(16 * 30, seed=5, most=30)
    model = model_of(TreeNet())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(trees, np.arange(len(trees)) % 2, batch_size=16, epochs=2, verbose=0)
    sizes = {
        tuple(a.shape for a in model.layers[0].pack(trees[i : i + 16]).values())
        for i in range(0, len(trees), 16)
    }
    assert len(sizes) <= 4


def test_save_and_load(tmp_path):
    trees, y = random_trees(20, seed=6), np.arange(20) % 2
    model = model_of(TreeNet())
    model.fit(trees, y, epochs=1, verbose=0)
    expected = model.predict(trees, verbose=0)
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras")
    np.testing.assert_array_equal(loaded.predict(trees, verbose=0), expected)
    assert loaded.optimizer.iterations.numpy() == model.optimizer.iterations.numpy()
    model.save_weights(tmp_path / "net.weights.h5")
    other = model_of(TreeNet())
    other(trees[:2])
    other.load_weights(tmp_path / "net.weights.h5")
    np.testing.assert_array_equal(other.predict(trees, verbose=0), expected)


def test_a_subclassed_model_with_a_method_as_function(engine):
    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.word, self.join = layers.Embedding(20, 4), layers.Dense(4, activation="tanh")
            self.tree, self.top = Folded(self.meaning), layers.Dense(1)

        def meaning(self, tree):
            if isinstance(tree, int):
                return self.word(tree)
            return self.join(ops.concatenate([self.meaning(part) for part in tree]))

        def call(self, inputs):
            trees, numbers = inputs
            return self.top(ops.concatenate([self.tree(trees), numbers], axis=-1))

    trees, numbers = random_trees(24, seed=7), np.ones((24, 2), "float32")
    model = Net()
    model.compile("adam", "mse")
    history = model.fit((trees, numbers), np.ones((24, 1)), epochs=20, batch_size=12, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0] * 0.9
    assert len(model.trainable_variables) == 5
    assert model.predict((trees, numbers), verbose=0).shape == (24, 1)


def test_lists_graphs_and_several_results():
    cell, word = layers.Dense(4, activation="tanh"), layers.Embedding(10, 4)
    start = keras.Variable(np.full(4, 0.5, "float32"))

    def read(sequence):
        state = start
        for item in sequence:
            state = cell(ops.concatenate([state, word(item)]))
        return {"state": state, "norm": ops.sum(state * state)}

    folded = Folded(read)
    rows = [[1, 2, 3], [], [4], list(range(9))]
    whole, single = folded(rows), folded.one_by_one(rows)
    assert whole["state"].shape == (4, 4) and whole["norm"].shape == (4,)
    for name in whole:
        np.testing.assert_allclose(whole[name].numpy(), single[name].numpy(), atol=1e-6)
    np.testing.assert_array_equal(whole["state"].numpy()[1], np.full(4, 0.5))
    inner = [start, *folded.trainable_variables]
    total = gradients_of(ops.sum(whole["norm"]), inner)
    one = gradients_of(ops.sum(single["norm"]), inner)
    compiled = keras.function(lambda p: gradients_of(ops.sum(folded(p)["norm"]), inner))
    for a, b, c in zip(total, one, compiled(folded.pack(rows))):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)
        np.testing.assert_allclose(c.numpy(), b.numpy(), atol=1e-5)

    def shared(graph):  # node -> its parents; a node's result is computed once
        done = {}
        for node, parents in graph.items():
            inputs = [done[p] for p in parents] or [word(node)]
            done[node] = cell(ops.concatenate([ops.mean(ops.stack(inputs), axis=0), word(node)]))
        return done[node]

    graphs = [{0: [], 1: [0], 2: [0, 1], 3: [0, 2]}, {5: []}, {1: [], 2: [], 3: [1, 2, 1]}]
    dag = Folded(shared)
    np.testing.assert_allclose(dag(graphs).numpy(), dag.one_by_one(graphs).numpy(), atol=1e-6)
    assert len(dag.pack(graphs[:1])) and dag([graphs[0]]).shape == (1, 4)


def test_arrays_in_nodes_and_cells_with_lists_of_children():
    dense, total = layers.Dense(3), layers.Dense(3)

    class Children(layers.Layer):
        def __init__(self):
            super().__init__()
            self.total = total

        def call(self, own, children=(), scale=None):
            result = own
            for child in children:
                result = result + self.total(child)
            return result if scale is None else result * ops.expand_dims(scale, -1)

    cell = Children()

    def walk(node):
        vector, children = node
        return cell(dense(vector), [walk(c) for c in children], scale=np.float32(0.5))

    leaf = (np.ones(2, "float32"), [])
    nodes = [leaf, (np.zeros(2, "float32"), [leaf, leaf, leaf]), (np.ones(2, "float32"), [leaf])]
    folded = Folded(walk)
    np.testing.assert_allclose(folded(nodes).numpy(), folded.one_by_one(nodes).numpy(), atol=1e-6)


def test_single_nodes_one_tree_and_no_tree():
    net = TreeNet()
    with pytest.raises(ValueError, match="at least one structure, got none"):
        net([])
    np.testing.assert_array_equal(net([4]).numpy()[0], net.word.embeddings.numpy()[4])
    assert net([(1, 2)]).shape == (1, UNITS)
    assert net([]).shape == (0, UNITS)
    model = model_of(net)
    assert np.isfinite(model.fit([4, 5], np.array([0, 1]), verbose=0).history["loss"][0])
    with pytest.raises(ValueError, match="at least one sample"):
        model.fit([], np.zeros(0), verbose=0)


@pytest.mark.slow
def test_very_deep_lists(engine):
    cell = layers.Dense(3, activation="tanh")

    def fold_right(chain):
        return cell(np.ones(3, "float32")) if not chain else cell(fold_right(chain[0]))

    def nested(depth):
        chain = ()
        for _ in range(depth):
            chain = (chain,)
        return chain

    limit = sys.getrecursionlimit()
    model = keras.Sequential([Folded(fold_right), layers.Dense(1)])
    model.compile("sgd", "mse")
    chains = [nested(1000), nested(30), nested(1500)]
    assert np.isfinite(model.fit(chains, np.ones((3, 1)), verbose=0).history["loss"][0])
    assert model.predict(chains, verbose=0).shape == (3, 1)
    assert sys.getrecursionlimit() == limit
    loop = []
    loop.append(loop)
    with pytest.raises(RecursionError, match="times deep on structure 1.*hold itself"):
        model.layers[0]([nested(2), loop])


def test_nan_stays_in_its_tree():
    dense = layers.Dense(3)

    def walk(node):
        vector, children = node
        result = dense(vector)
        for child in children:
            result = result + walk(child)
        return result

    good = (np.ones(2, "float32"), [(np.ones(2, "float32"), [])])
    bad = (np.full(2, np.nan, "float32"), [good])
    folded = Folded(walk)
    trees = [good, bad, good, (np.ones(2, "float32"), [bad])]
    for result in (folded(trees), keras.function(folded)(folded.pack(trees))):
        assert np.isnan(result.numpy()).all(axis=1).tolist() == [False, True, False, True]
        np.testing.assert_array_equal(result.numpy()[0], result.numpy()[2])


def test_threads_share_a_model():
    net = TreeNet()
    groups = [random_trees(12, seed=i) for i in range(6)]
    model = model_of(net)
    model(groups[0])
    expected = [model.predict(g, verbose=0) for g in groups]
    fresh, results = model_of(net), {}
    fresh.layers[1].build((None, UNITS))
    fresh.layers[1].set_weights(model.layers[1].get_weights())

    def work(i):
        results[i] = fresh.predict(groups[i], verbose=0)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(6):
        np.testing.assert_allclose(results[i], expected[i], atol=1e-6)


def failing(node):
    if node == "bad":
        return layers.Dense(2)("text")
    if isinstance(node, tuple):
        return failing(node[0])
    return ops.convert_to_tensor(np.ones(2, "float32")) * 1.0


@pytest.mark.parametrize(
    ("function", "structures", "message"),
    [
        (lambda n: 1.0 if n else np.ones(2), [1, 0], "the same shapes for every structure"),
        (lambda n: (), [1], "returned no tensor"),
        (lambda n: layers.Embedding(4, 2)(n) if ops.sum(layers.Dense(2)(np.ones(2))) > 0 else n,
         [1], "Python asked for the value of a tensor.*one_by_one"),
        (lambda n: layers.GlobalAveragePooling1D()(np.ones((3, 2), "float32"))
         + layers.Flatten(data_format="channels_last")(object()), [1], "passes <object"),
        (lambda n: layers.Dense(2, activity_regularizer="l2")(np.ones(2)), [1],
         "activity_regularizer"),
        (lambda n: layers.Lambda(lambda x: ops.sum(x, axis=0))(np.ones(2)), [1],
         "one row per row of its arguments"),
    ],
)  # fmt: skip
def test_errors_name_the_structure(function, structures, message):
    with pytest.raises((ValueError, TypeError), match=message) as error:
        Folded(function)(structures)
    if "same shapes" not in message:
        assert "structure 0" in "".join(error.value.__notes__)


def test_errors_name_the_node():
    with pytest.raises((ValueError, TypeError)) as error:
        Folded(failing, name="walk")([1, (("bad",),)])
    assert error.value.__notes__[-1] == (
        "This happened in Folded \"walk\", structure 1, node 'bad' at depth 2."
    )


def test_refused_uses():
    net = TreeNet()
    with pytest.raises(NotImplementedError, match="no symbolic tensor"):
        net(keras.Input((3,)))
    with pytest.raises(TypeError, match="expected a list of structures, got int"):
        net(3)
    with pytest.raises(TypeError, match="takes a function"):
        Folded(3)
    with pytest.raises(NotImplementedError, match="visit"):
        Folded()([1])
    kept = []

    def leak(node):
        kept.append(layers.Dense(2)(np.ones(2)))
        return kept[0]

    with pytest.raises(ValueError, match="computed for another structure"):
        Folded(leak)([1, 2])
    source = keras.Tensor(np.ones(2, "float32"), requires_grad=True)
    with pytest.raises(ValueError, match="to which gradients should flow"):
        Folded(lambda n: layers.Dense(2)(source))([1])
    with pytest.raises(TypeError, match="pack them outside"):
        keras.function(lambda: net([1, 2]))()


def test_layers_that_assign_are_refused_in_compiled_steps_and_run_eagerly():
    word, drop = layers.Embedding(20, 4), layers.Dropout(0.5)
    trees, y = random_trees(8, seed=8), np.zeros((8, 1))

    def walk(tree):
        return word(tree) if isinstance(tree, int) else drop(walk(tree[0]) + walk(tree[1]))

    def model(**options):
        result = keras.Sequential([Folded(walk), layers.Dense(1)])
        result.compile("sgd", "mse", **options)
        return result

    with pytest.raises(TypeError, match="Dropout.*assigns the variable.*run_eagerly"):
        model().fit(trees, y, verbose=0)
    assert np.isfinite(model(run_eagerly=True).fit(trees, y, verbose=0).history["loss"][0])


def test_a_layer_that_the_optimizer_does_not_know_is_an_error():
    word, pair, triple = layers.Embedding(20, 4), layers.Dense(4), layers.Dense(4)

    def walk(tree):
        if isinstance(tree, int):
            return word(tree)
        join = pair if len(tree) == 2 else triple
        return join(ops.concatenate([walk(t) for t in tree]))

    model = keras.Sequential([Folded(walk), layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit([(1, 2), 3], np.zeros((2, 1)), verbose=0)
    with pytest.raises(ValueError, match="for the first time after the optimizer was built"):
        model.fit([(1, 2, 3)], np.zeros((1, 1)), verbose=0)


def test_record_once_false_looks_again():
    word, seen = layers.Embedding(20, 4), []

    def walk(tree):
        seen.append(tree)
        return word(tree)

    for once, times in ((True, 4), (False, 8)):
        seen.clear()
        model = keras.Sequential([Folded(walk, record_once=once), layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit([1, 2, 3, 4], np.zeros((4, 1)), batch_size=2, epochs=2, verbose=0)
        assert len(seen) >= times and (len(seen) == 4) is once


def test_generators_and_objects_arrays():
    model = model_of(TreeNet())
    trees, y = random_trees(16, seed=9), np.arange(16) % 2

    def batches():
        for i in range(0, 16, 8):
            yield Structures(trees[i : i + 8]), y[i : i + 8]

    assert np.isfinite(model.fit(batches(), verbose=0).history["loss"][0])
    column = np.empty(16, object)
    column[:] = trees
    np.testing.assert_array_equal(model.predict(column, verbose=0), model.predict(trees, verbose=0))
