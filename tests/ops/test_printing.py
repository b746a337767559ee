"""ops.print: every value once, in the order of the program, on both engines, in compiled steps."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import kerasish
from kerasish import config, layers, ops
from kerasish.engine.layer.stateless import StatelessScope
from kerasish.export import load_archive
from kerasish.ops.basic import printing
from kerasish.ops.op import REGISTRY

pytestmark = pytest.mark.usefixtures("engine")


def lines(capsys):
    return capsys.readouterr().out.splitlines()


def numbers(*values):
    return np.float32(values)


def test_texts_tensors_and_structures(capsys):
    @kerasish.function
    def f(x):
        ops.print(
            "x:", x, {"sum": ops.sum(x), "pair": [x[0], (x[1],)]}, 7, None, sep=" | ", end="!"
        )
        ops.print()
        return ops.print(x, "is", "x") + 1

    assert f(numbers(1, 2.5)).tolist() == [2.0, 3.5]
    assert lines(capsys) == [
        "x: | [1.  2.5] | {'sum': 3.5, 'pair': [1., (2.5,)]} | 7 | None!",
        "[1.  2.5] is x",
    ]


def test_numpys_print_options_hold_when_it_prints(capsys):
    f = kerasish.function(lambda x: x.print("h"))
    x = np.arange(3000, dtype="float32").reshape(2, 1500) / 3
    with np.printoptions(precision=1, edgeitems=2, threshold=10):
        f(x)
        expected = "h " + np.array2string(x, prefix="h ")
    assert lines(capsys) == expected.splitlines() and "..." in expected


def test_what_is_printed_is_printed_again_in_each_call_and_in_order(capsys):
    @kerasish.function
    def f(x):
        for i in range(20):
            ops.print(i, x + i)
            ops.print(i, x + i)  # equal expressions are two prints
        return x * 0

    for call in range(3):
        f(numbers(call))
        assert lines(capsys) == [f"{i} [{call + i}.]" for i in range(20) for _ in range(2)]


def test_constants_are_printed_when_the_step_runs(capsys):
    @kerasish.function
    def f(x):
        ops.print("constant", ops.arange(3) * 2)
        return x

    for _ in range(2):
        f(numbers(1))
        assert lines(capsys) == ["constant [0 2 4]"]


def test_control_flow(capsys):
    @kerasish.function
    def f(x):
        def yes():
            ops.print("yes", x)
            return x

        def no():
            ops.print("no", x)
            return -x

        y = ops.cond(ops.sum(x) > 0, yes, no)

        def body(i, total):
            ops.print("while", i)
            ops.cond(i > 0, lambda: ops.print("odd", i), lambda: i)
            return i + 1, total + y[0]

        _, total = ops.while_loop(lambda i, _: i < 2, body, (0, 0.0))

        def along(carry, row):
            ops.print("scan", carry)
            return carry + row, carry

        last, _ = ops.scan(along, 0, ops.arange(9))
        ops.print("switch")
        ops.switch(2, [lambda: x, lambda: x, lambda: ops.print("third", x)])
        ops.fori_loop(0, 9, lambda i, s: ops.print("fori", s + 1, sep=""), last)
        return total

    expected = ["while 0", "while 1", "odd 1", *(f"scan {n * (n - 1) // 2}" for n in range(9))]
    expected += ["switch", "third [{}]", *(f"fori{37 + n}" for n in range(9))]
    for sign, branch in ((1, "yes"), (-1, "no")):
        assert float(f(numbers(sign))) == 2.0
        shown = f"{sign}."
        assert lines(capsys) == [f"{branch} [{shown}]", *(e.format(shown) for e in expected)]


def test_a_loop_that_is_unrolled_prints_only_the_steps_that_are_done(capsys):
    @kerasish.function
    def f(x, most):
        def body(s):
            return (ops.print("body", s) * 2,)

        return ops.while_loop(lambda s: s < most, body, (x,), maximum_iterations=6)[0]

    assert float(kerasish.grad(f)(np.float32(1), np.float32(5))) == 8.0
    assert lines(capsys) == ["body 1.", "body 2.", "body 4."]


def test_cond_of_a_loop_refuses_to_print_in_a_step(engine, capsys):
    @kerasish.function
    def f(x):
        return ops.while_loop(lambda i: ops.print("cond", i) < 2, lambda i: (i + 1,), (x,))[0]

    if engine == "eager":
        assert int(f(np.int32(0))) == 2 and lines(capsys) == ["cond 0", "cond 1", "cond 2"]
    else:
        with pytest.raises(kerasish.errors.TraceError, match="cond must not print"):
            f(np.int32(0))


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_flow_through_and_print_nothing(order, capsys):
    @kerasish.function
    def cube(x):
        return x.print("x") ** 3

    f = cube
    for _ in range(order):
        f = kerasish.grad(f)
    assert float(f(np.float32(2.0))) == [12.0, 12.0][order - 1]
    assert lines(capsys) == ["x 2."]


def test_gradients_through_scan_print_each_step_once(capsys):
    @kerasish.function
    def f(x):
        return ops.scan(lambda c, r: (ops.print("c", c) * r, c), x, ops.ones(9))[0]

    assert float(kerasish.grad(f)(np.float32(2.0))) == 1.0
    assert lines(capsys) == ["c 2."] * 9


def test_remat_prints_once(capsys):
    @kerasish.function
    def f(x):
        return kerasish.grad(kerasish.remat(lambda x: ops.print("inside", ops.exp(x)) * x))(x)

    f(np.float32(0.0))
    assert lines(capsys) == ["inside 1."]


def test_vmap_prints_all_examples_at_once(capsys):
    def one(x):
        ops.print("x", x, "of", np.int32([7]))
        return x * 2

    f = kerasish.function(lambda x: kerasish.vmap(one)(x))
    assert f(np.float32([[1, 2], [3, 4]])).tolist() == [[2, 4], [6, 8]]
    assert lines(capsys) == ["x [[1. 2.]", "   [3. 4.]] of [7]"]


def test_vmap_of_branches_prints_the_examples_that_take_them(capsys):
    def one(x):
        yes = lambda: ops.print("positive", x)  # noqa: E731
        nested = lambda: ops.cond(x < -1, lambda: ops.print("small", x, 5), lambda: x)  # noqa: E731
        y = ops.cond(x > 0, yes, nested)
        return ops.switch(ops.cast(x, "int32"), [lambda: y, lambda: y, lambda: ops.print("two", y)])

    f = kerasish.function(lambda x: kerasish.vmap(one)(x))
    assert f(numbers(1, -1, 2, -5)).tolist() == [1, -1, 2, -5]
    assert lines(capsys) == ["positive [1. 2.]", "small [-5.] 5", "two [2.]"]
    f(numbers(1, 1, 1, 1))
    assert lines(capsys) == ["positive [1. 1. 1. 1.]"]


def test_nested_vmap_under_a_condition(capsys):
    def one(x, y):
        return ops.cond(y > 0, lambda: ops.print("both", x, y), lambda: x)

    rows = kerasish.vmap(lambda x, ys: kerasish.vmap(one, in_axes=(None, 0))(x, ys), (0, None))
    rows(numbers(1, 2), numbers(5, -5, 6))
    assert lines(capsys) == ["both [1. 1. 2. 2.] [5. 6. 5. 6.]"]


class Printing(kerasish.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1, kernel_initializer="ones")

    def call(self, x):
        y = self.dense(x)
        ops.print("unused", ops.max(y * 3))
        return y


def test_fit_evaluate_and_predict_print_every_batch(engine, capsys):
    model = Printing()
    model.compile(kerasish.optimizers.SGD(0.0), "mse")
    x, y = np.arange(6, dtype="float32")[:, None], np.zeros((6, 1), "float32")
    model.fit(x, y, batch_size=2, epochs=2, shuffle=False, verbose=0)
    assert lines(capsys) == ["unused 3.", "unused 9.", "unused 15."] * 2
    model.evaluate(x, y, batch_size=2, verbose=0)
    model.predict(x, batch_size=3, verbose=0)
    assert lines(capsys) == ["unused 3.", "unused 9.", "unused 15.", "unused 6.", "unused 15."]


def test_a_step_that_prints_is_one_native_call_for_many_batches():
    config.set_backend("static")
    model = Printing()
    model.compile("sgd", "mse")
    data = np.zeros((8, 1), "float32")
    model.fit(data, data, batch_size=2, verbose=0)
    step = model.training_program.step("train")
    (executable,) = step.executables()
    assert executable.is_native and len(executable.parts) == 1
    steps = step.over_rows([data, data], lambda parts: (*parts, None), np.arange(8), 2)
    assert steps is None or steps.run(10.0) == 4


def test_weights_are_the_same_with_and_without_prints():
    def trained(prints):
        class Own(Printing):
            def call(self, x):
                if not prints:
                    return self.dense(x)
                return ops.print("y", self.dense(ops.print("x", x)))

        model = Own()
        model.compile("adam", "mse")
        x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
        model.fit(x, x[:, :1], batch_size=4, epochs=3, shuffle=False, verbose=0)
        return [w.tobytes() for w in model.get_weights()]

    assert trained(True) == trained(False)


def test_a_functional_model_prints_what_it_uses(capsys):
    inputs = kerasish.Input((2,))
    used = ops.print("used", inputs)
    used.print("not used")
    model = kerasish.Model(inputs, used + 1)
    model.predict(np.ones((1, 2), "float32"), verbose=0)
    assert lines(capsys) == ["used [[1. 1.]]"]


def test_a_wrong_guess_of_a_path_prints_once(capsys):
    @kerasish.function
    def f(x):
        ops.print("before", x)
        if x > 0:
            ops.print("positive", x)
        else:
            ops.print("negative", x)
        if x > 5:
            ops.print("large", x)
        return x

    for x in (1, -1, 6, 7, -2, 1):
        f(np.float32(x))
        expected = [f"before {x}.", f"{'positive' if x > 0 else 'negative'} {x}."]
        assert lines(capsys) == expected + [f"large {x}."] * (x > 5)
    assert printing._state.held is None


def test_paths_in_fit_print_each_batch_once(capsys):
    class Asks(kerasish.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1)

        def call(self, x):
            ops.print("x", x[0, 0])
            return self.dense(x) if ops.sum(x) > 0 else self.dense(-x)

    model = Asks()
    model.compile("sgd", "mse")
    x = np.float32([1, -2, 3, 4, -5, 6, -7, -8])[:, None]
    model.fit(x, x, batch_size=1, epochs=2, shuffle=False, verbose=0)
    assert lines(capsys) == [f"x {n}." for n in (1, -2, 3, 4, -5, 6, -7, -8)] * 2


def test_a_step_inside_a_stateless_scope_prints(capsys):
    state = kerasish.Variable(0.0)

    @kerasish.function
    def f(x):
        with StatelessScope():
            state.assign(x)
            y = ops.cond(x > 0, lambda: ops.print("inside", state.value), lambda: x)
        ops.print("after", y)
        return y

    f(np.float32(2))
    assert lines(capsys) == ["inside 2.", "after 2."]


def test_half_numbers_are_printed_as_they_are(capsys):
    f = kerasish.function(lambda x: ops.print("h", ops.cast(x, "bfloat16") + 0.001) * 2)
    f(numbers(1.0))
    assert lines(capsys) == ["h [1]"]


def test_an_error_of_stdout_reaches_the_caller_and_the_next_call_works(monkeypatch, capsys):
    class Closed:
        def write(self, text):
            raise BrokenPipeError("closed")

        def flush(self):
            raise BrokenPipeError("closed")

    weight = kerasish.Variable(1.0)

    @kerasish.function
    def f(x):
        weight.assign(ops.print("x", x))
        return x

    f(np.float32(1))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Closed())
        with pytest.raises(BrokenPipeError, match="closed"):
            f(np.float32(2))
    f(np.float32(3))
    assert lines(capsys) == ["x 1.", "x 3."] and float(weight) == 3.0


def test_shape_inference_and_exports_print_nothing(tmp_path, capsys):
    kerasish.Sequential([layers.Lambda(lambda x: ops.print("x", x))]).build((None, 2))
    assert lines(capsys) == []
    model = Printing()
    x = np.ones((1, 2), "float32")
    expected = np.asarray(model(x))
    assert len(lines(capsys)) == 1
    signature = [kerasish.InputSpec(shape=(None, 2), dtype="float32")]
    model.export(tmp_path / "model", verbose=False, input_signature=signature)
    np.testing.assert_array_equal(load_archive(tmp_path / "model").serve(x), expected)
    assert lines(capsys) == []


def test_the_op_prints_for_examples_where_a_condition_holds(capsys):
    op = REGISTRY["print_values"]
    rows = [np.float32([[1, 2], [3, 4]]), np.array([False, True])]
    result = op.kernel(np, np.int32(5), *rows, parts=("x ", 0, "\n"), conditional=True)
    assert result == 5 and lines(capsys) == ["x [[3. 4.]]"]
    op.kernel(np, np.int32(5), rows[0], np.array(False), parts=(0,), conditional=True)
    assert lines(capsys) == []


def test_a_step_that_prints_in_strict_memory():
    code = (
        "import numpy as np, kerasish\n"
        "from kerasish import ops\n"
        "f = kerasish.function(lambda x: ops.print('x', ops.sum(ops.exp(x) * 0)) + x)\n"
        "[f(np.ones((300,), 'float32')) for _ in range(2)]\n"
    )
    environment = {**os.environ, "KERASISH_STRICT_MEMORY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["x 0.", "x 0."]
