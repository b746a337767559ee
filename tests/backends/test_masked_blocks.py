"""Blocks of time steps that a mask leaves out, with the products before and after a recurrence."""

from __future__ import annotations

import numpy as np
import pytest

import kerasish
from kerasish import backends, config, layers
from kerasish.backends.static.codegen.driver import load_runtime
from kerasish.backends.static.engine import COMPILED_PLANS
from kerasish.backends.static.lowering import masked_recurrent
from kerasish.backends.static.lowering import recurrences as lowered
from kerasish.graph.interpret import interpret
from kerasish.graph.ir import verify
from kerasish.graph.passes import optimize, recurrences
from kerasish.graph.trace import trace

STEPS, ROWS, SIZE, WORDS = 11, 3, 2, 7
MASKS = ("tail", "head", "holes", "one row", "none", "all")
SEQUENCES = {"return_sequences": True}


def inputs_of(kind, steps=STEPS):
    """Return inputs (rows, steps, size); where all numbers of a time step are 0, it is masked."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, steps, SIZE)).astype("float32")
    if kind == "tail":
        for row, length in enumerate((1, 4, 5)):
            x[row, length:] = 0
    elif kind == "head":
        x[:, :8] = 0
        x[0, :9] = 0
    elif kind == "holes":
        x[:, 1:6] = 0
        x[1, ::2] = 0
    elif kind == "one row":
        x[:2] = 0
        x[2, 5:] = 0
    elif kind == "none":
        x[:] = 0
    return x


def stacked(name, **options):
    kind = getattr(layers, name)
    return lambda x: kind(3, **options)(kind(4, **SEQUENCES, **options)(x))


NETS = {
    "LSTM": lambda x: layers.LSTM(4)(x),
    "GRU": lambda x: layers.GRU(4)(x),
    "SimpleRNN": lambda x: layers.SimpleRNN(4)(x),
    "LSTM, all outputs": lambda x: layers.LSTM(4, **SEQUENCES)(x),
    "GRU, all outputs": lambda x: layers.GRU(4, **SEQUENCES)(x),
    "SimpleRNN, all outputs": lambda x: layers.SimpleRNN(4, **SEQUENCES)(x),
    "two LSTMs": stacked("LSTM"),
    "two GRUs": stacked("GRU", use_bias=False),
    "two SimpleRNNs": stacked("SimpleRNN"),
    "backwards": lambda x: layers.LSTM(4, go_backwards=True)(x),
    "both directions": lambda x: layers.Bidirectional(layers.GRU(4, **SEQUENCES))(x),
    "both directions, two": lambda x: layers.Bidirectional(layers.LSTM(3))(
        layers.Bidirectional(layers.LSTM(4, **SEQUENCES))(x)
    ),
    "states": lambda x: layers.Concatenate()(layers.LSTM(4, return_state=True)(x)),
    "zeros where masked": lambda x: layers.GRU(4, zero_output_for_mask=True, **SEQUENCES)(x),
    "first states": lambda x: layers.LSTM(2)(x, initial_state=[x[:, 0], x[:, 1]]),
    "no bias": lambda x: layers.LSTM(4, use_bias=False)(x),
    "one state": lambda x: layers.GRU(1)(x),
    "reset before": lambda x: layers.GRU(4, reset_after=False)(x),
}  # fmt: skip


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(recurrences, "BLOCK", 4)
    COMPILED_PLANS.clear()
    yield
    COMPILED_PLANS.clear()


@pytest.fixture(autouse=True)
def restored():
    before = config.backend()
    yield
    config.set_backend(before)


def model_of(net, steps=STEPS, embedded=False, **compiled):
    """Return a model: words or inputs that are masked, and then `net`."""
    kerasish.utils.set_random_seed(3)
    if embedded:
        inputs = kerasish.Input((steps,), dtype="int32")
        x = layers.Embedding(WORDS, SIZE, mask_zero=True)(inputs)
    else:
        inputs = kerasish.Input((steps, SIZE))
        x = layers.Masking()(inputs)
    model = kerasish.Model(inputs, net(x))
    model.compile(**{"optimizer": kerasish.optimizers.SGD(0.5), "loss": "mse", **compiled})
    return model


def trained(engine, net, kinds, x_of=inputs_of, masked_units=0, **options):
    """Return losses, weights and predictions after a training step on each kind of inputs."""
    config.set_backend(engine)
    model = model_of(net, **options)
    y = np.random.default_rng(1).uniform(-0.9, 0.9, (ROWS, *model.output_shape[1:]))
    losses = [model.train_on_batch(x_of(kind), y.astype("float32")) for kind in kinds]
    if engine == "static" and masked_units:
        run = [u.name for u in units_of(model)[0]]
        assert len([n for n in run if n.endswith("gradient")]) == masked_units
        assert len(run) == 2 * masked_units
    predicted = [model.predict(x_of(kind), verbose=0) for kind in kinds]
    return [np.array(losses), *predicted, *model.get_weights()]


def assert_equal(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6)


SLOW = ("GRU", "SimpleRNN", "two SimpleRNNs", "both directions, two", "no bias", "reset before",
        "GRU, all outputs", "LSTM, all outputs")  # fmt: skip


@pytest.mark.parametrize(
    "net", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in NETS]
)
def test_training_equals_that_of_the_eager_engine(net, small_blocks):
    units = {"reset before": 0, "both directions": 2, "both directions, two": 4}.get(net)
    units = (2 if net.startswith("two") else 1) if units is None else units
    results = [
        trained(engine, NETS[net], MASKS, masked_units=units) for engine in ("static", "eager")
    ]
    assert_equal(*results)


def words_of(kind):
    x = np.random.default_rng(2).integers(1, WORDS, (ROWS, STEPS)).astype("int32")
    return np.where(inputs_of(kind).any(-1), x, 0).astype("int32")


@pytest.mark.parametrize("net", ["LSTM", "two GRUs", "both directions"])
def test_embedded_words(net, small_blocks):
    results = [
        trained(engine, NETS[net], MASKS, words_of, embedded=True)
        for engine in ("static", "eager")
    ]  # fmt: skip
    assert_equal(*results)


def test_whole_blocks_of_the_usual_size():
    steps = 3 * recurrences.BLOCK + 2

    def x_of(kind):
        x = inputs_of("all", steps)
        x[:, (5 if kind == "tail" else steps) :] = 0
        return x

    results = [
        trained(engine, NETS["two LSTMs"], ("tail", "all"), x_of, steps=steps)
        for engine in ("static", "eager")
    ]  # fmt: skip
    assert_equal(*results)


@pytest.mark.parametrize("place", ["inputs", "kernel"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_nan_where_masked_has_the_same_effect_on_both_engines(place, number, small_blocks):
    """0 times it is NaN: in the kernel's gradient, and in those of the inputs."""

    def step(engine):
        config.set_backend(engine)
        kerasish.utils.set_random_seed(3)
        layer = layers.LSTM(2)
        layer.build((ROWS, STEPS, SIZE))
        weights = [np.array(w) for w in layer.get_weights()]
        x = inputs_of("all")
        mask = np.zeros((ROWS, STEPS), bool)
        mask[:, :2] = True
        if place == "inputs":
            x[1, 9, 0] = number
        else:
            weights[0][1, 3] = number
            mask[:] = False
        layer.set_weights(weights)

        def loss(x, kernel):
            with kerasish.StatelessScope(state_mapping=[(layer.cell.kernel, kernel)]):
                return kerasish.ops.sum(layer(x, mask=mask))

        gradients = kerasish.grad(loss, (0, 1))
        function = kerasish.function(gradients) if engine == "static" else gradients
        return [np.asarray(g) for g in function(x, weights[0])]

    for static, eager in zip(step("static"), step("eager"), strict=True):
        assert np.isnan(eager).any() == np.isnan(static).any()
        np.testing.assert_allclose(static, eager, rtol=2e-4, atol=2e-6)


def units_of(model):
    """Return the recurrent units of a compiled training step, and all of its units."""
    (executable,) = model.training_program.step("train").executables()
    units = executable.compiled_plan.units
    units = [m for u in units for m in getattr(u, "members", [u])]
    return [u for u in units if isinstance(u, masked_recurrent.Masked)], units


def test_products_belong_to_the_recurrences(small_blocks):
    config.set_backend("static")
    model = model_of(NETS["two LSTMs"], embedded=True)
    model.train_on_batch(words_of("tail"), np.zeros((ROWS, 3), "float32"))
    recurrent, units = units_of(model)
    assert [u.name for u in recurrent] == ["lstm", "lstm", "lstm_gradient", "lstm_gradient"]
    assert not [u for u in units if "matmul" in u.name or u.name == "transpose" and u.flops]
    for unit in recurrent[2:]:
        assert {"d_inputs", "d_kernel", "d_bias"} <= set(unit.results)
        assert {"cells", "gates"} <= {n for n, v in unit.given.items() if v in unit.unchecked}
    last = recurrent[2]  # the gradient of the second layer runs first
    assert "g_last" in last.given and "g_states" not in last.given


def test_blocks_are_left_out(small_blocks):
    """Most records of a step are in choices of whole blocks."""
    config.set_backend("static")
    model = model_of(NETS["LSTM"])
    model.train_on_batch(inputs_of("tail"), np.zeros((ROWS, 4), "float32"))
    (executable,) = model.training_program.step("train").executables()
    chosen = [
        record
        for part in executable.parts
        for record in getattr(part, "records", ())
        if record.function == load_runtime().choose
    ]
    # Three blocks: the inputs, the time steps, their gradients, and the products of these.
    assert len(chosen) == 4 * 3


@pytest.mark.parametrize("net", ["two LSTMs", "two GRUs", "two SimpleRNNs", "states"])
def test_the_pass_keeps_the_numbers(net, small_blocks):
    config.set_backend("static")
    model = model_of(NETS[net])
    y = np.ones((ROWS, *model.output_shape[1:]), "float32")

    def loss(x, *weights):
        pairs = list(zip(model.trainable_variables, weights, strict=True))
        with kerasish.StatelessScope(state_mapping=pairs):
            return kerasish.ops.sum(kerasish.ops.square(model(x) - y))

    weights = [np.array(w) for w in model.get_weights()]
    step = kerasish.value_and_grad(loss, tuple(range(1, len(weights) + 1)))
    arguments = (inputs_of("holes"), *weights)
    graph = optimize(trace(step, *arguments).graph)
    after = verify(recurrences.fuse_recurrences(graph))
    combined = [n for n in after.nodes if n.op.name == "masked_recurrence"]
    assert len(combined) == (2 if net == "states" else 4)
    for a, b in zip(interpret(graph, arguments), interpret(after, arguments), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_without_a_library(monkeypatch, small_blocks):
    wanted = trained("eager", NETS["two GRUs"], MASKS)
    monkeypatch.setattr(lowered, "make_recurrent", lambda node, private=(): None)
    assert_equal(trained("static", NETS["two GRUs"], MASKS), wanted)


@pytest.mark.slow
def test_gradients_of_gradients(small_blocks):
    def second(engine):
        config.set_backend(engine)
        kerasish.utils.set_random_seed(3)
        layer = layers.GRU(2)
        x, mask = inputs_of("tail"), inputs_of("tail").any(-1)
        layer.build(x.shape)

        def norm(x):
            inner = kerasish.grad(lambda x: kerasish.ops.sum(layer(x, mask=mask)))(x)
            return kerasish.ops.sum(kerasish.ops.square(inner))

        outer = kerasish.grad(norm)
        return np.asarray((kerasish.function(outer) if engine == "static" else outer)(x))

    np.testing.assert_allclose(second("static"), second("eager"), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("shape", [(STEPS * ROWS, 8), (8,), (1, 8)])
def test_only_a_bias_is_added_inside(shape, small_blocks):
    rng = np.random.default_rng(4)
    sizes = [(STEPS * ROWS, SIZE), (SIZE, 8), shape, (2, 8), (ROWS, 2), (ROWS, 2)]
    arrays = [rng.normal(size=s).astype("float32") for s in sizes]
    mask = inputs_of("tail").any(-1).T.astype("float32")

    def states(x, kernel, added, recurrent, h, c):
        z = kerasish.ops.add(kerasish.ops.matmul(x, kernel), added)
        z = kerasish.ops.reshape(z, (STEPS, ROWS, 8))
        return kerasish.ops.lstm(z, recurrent, h, c, mask)[0]

    static, eager = (backends.choose(e).compile(states)(*arrays) for e in ("static", "eager"))
    np.testing.assert_allclose(static, eager, rtol=2e-4, atol=2e-6)
