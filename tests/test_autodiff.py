"""The reverse pass: backward, tapes, grad of grad, custom gradients, jvp."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import kerasish
from kerasish import GradientTape, Tensor, Variable, custom_gradient, grad, ops, value_and_grad
from kerasish.autodiff import jvp, sum_to_shape, vjp
from kerasish.errors import DTypeError, ShapeError
from kerasish.tensor import no_gradient
from kerasish.testing import gradient_check

# --- backward -----------------------------------------------------------------------------------


def test_backward_adds_up():
    x = Tensor(3.0, requires_grad=True)
    y = x**2 + x
    y.backward()
    assert x.grad.item() == 7.0
    (x * 2).backward()
    assert x.grad.item() == 9.0


def test_backward_through_shared_values():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    z = y + y * x
    z.sum().backward()
    np.testing.assert_allclose(x.grad, 2 * x.numpy() + 3 * x.numpy() ** 2)


def test_backward_of_broadcasting_sums():
    x = Tensor(np.ones((2, 1)), requires_grad=True)
    b = Tensor(np.ones(3), requires_grad=True)
    (x * b).sum().backward()
    assert x.grad.tolist() == [[3.0], [3.0]]
    assert b.grad.tolist() == [2.0, 2.0, 2.0]


def test_backward_with_a_given_gradient():
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 3).backward(gradient=[1.0, 10.0])
    assert x.grad.tolist() == [3.0, 30.0]


def test_backward_errors():
    with pytest.raises(ValueError, match="requires a gradient"):
        Tensor(1.0).backward()
    with pytest.raises(ShapeError, match="gradient="):
        (Tensor([1.0, 2.0], requires_grad=True) * 2).backward()
    with pytest.raises(DTypeError, match="int32"):
        Tensor([1], requires_grad=True)


def test_backward_reaches_variables():
    v = Variable([1.0, 2.0])
    fixed = Variable([1.0, 2.0], trainable=False)
    ops.sum(v * fixed).backward()
    assert v.grad.tolist() == [1.0, 2.0]
    assert fixed.grad is None


def test_backward_with_graph_gives_second_derivatives():
    x = Tensor(2.0, requires_grad=True)
    (x**3).backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.backward()
    assert x.grad.item() == 12.0


def test_detach_and_stop_gradient_cut():
    x = Tensor(2.0, requires_grad=True)
    (x * x.detach() + ops.stop_gradient(x) * 5).backward()
    assert x.grad.item() == 2.0


def test_long_chains_need_no_recursion():
    x = Tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0
    y.backward()
    assert x.grad.item() == 1.0


def test_records_go_when_the_result_goes():
    x = Tensor(np.ones(3), requires_grad=True)
    y = x * 2
    maker = weakref.ref(y.maker)
    del y
    gc.collect()
    assert maker() is None


def test_no_gradient_records_nothing():
    x = Tensor(1.0, requires_grad=True)
    with no_gradient():
        assert not (x * 2).tracked
    assert (x * 2).tracked


# --- tapes ----------------------------------------------------------------------------------------


def test_tape_with_variables():
    v, w = Variable([1.0, 2.0]), Variable(3.0)
    with GradientTape() as tape:
        loss = ops.sum(v * v * w)
    slopes = tape.gradient(loss, {"v": v, "w": [w]})
    assert slopes["v"].tolist() == [6.0, 12.0]
    assert slopes["w"][0].item() == 5.0


def test_tape_is_used_up():
    v = Variable(1.0)
    with GradientTape() as tape:
        y = v * v
    tape.gradient(y, v)
    with pytest.raises(RuntimeError, match="persistent"):
        tape.gradient(y, v)


def test_persistent_tape():
    v = Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = v * v
        z = y * v
    assert tape.gradient(y, v).item() == 6.0
    assert tape.gradient(z, v).item() == 27.0
    assert tape.gradient(z, y).item() == 3.0


def test_tape_watches_tensors():
    x = ops.convert_to_tensor(3.0)
    with GradientTape() as tape:
        tape.watch(x)
        y = x * x
    assert tape.gradient(y, x).item() == 6.0
    assert not x.requires_grad


def test_tape_without_watching_variables():
    v, w = Variable(2.0), Variable(5.0)
    with GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(v)
        y = v * w
    result = tape.gradient(y, [v, w])
    assert result[0].item() == 5.0
    assert result[1] is None
    assert tape.watched_variables() == [v] or tape.watched_variables()[0] is v


def test_nested_tapes_give_second_derivatives():
    v = Variable(2.0)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = v**3
        slope = inner.gradient(y, v)
    assert slope.item() == 12.0
    assert outer.gradient(slope, v).item() == 12.0


def test_unconnected():
    v, w = Variable(1.0), Variable([1.0, 2.0])
    with GradientTape(persistent=True) as tape:
        y = v * 2
    assert tape.gradient(y, w) is None
    assert tape.gradient(y, w, unconnected_gradients="zero").tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="unconnected"):
        tape.gradient(y, w, unconnected_gradients="zeros")


def test_tape_with_output_gradients():
    v = Variable([1.0, 2.0])
    with GradientTape() as tape:
        y = v * v
    assert tape.gradient(y, v, output_gradients=[1.0, 10.0]).tolist() == [2.0, 40.0]


def test_tape_stop_recording_and_reset():
    v = Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = v * v
        with tape.stop_recording():
            z = v * 5
        tape.reset()
        late = v * 7
    assert not z.tracked
    assert tape.gradient(late, v).item() == 7.0
    assert tape.gradient(y, v) is None


def test_tape_cannot_be_entered_twice():
    with GradientTape() as tape, pytest.raises(RuntimeError, match="recording already"), tape:
        pass


def test_tape_watch_wants_tensors():
    with GradientTape() as tape, pytest.raises(TypeError, match="expected tensors"):
        tape.watch("x")


def test_assignment_starts_a_new_leaf():
    v = Variable(2.0)
    with GradientTape() as tape:
        y = v * v
        v.assign(10.0)
        z = y + v
    assert tape.gradient(z, v).item() == 5.0


# --- grad and value_and_grad ----------------------------------------------------------------------


def test_grad_of_grad():
    cube = grad(grad(grad(lambda x: x**4)))
    assert cube(2.0).item() == 48.0


def test_value_and_grad_by_several_arguments():
    f = value_and_grad(lambda a, b, c: ops.sum(a * b + c), argnums=(0, 2))
    value, (da, dc) = f(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([0.0, 0.0]))
    assert value.item() == 11.0
    assert da.tolist() == [3.0, 4.0]
    assert dc.tolist() == [1.0, 1.0]


def test_negative_argnum():
    assert grad(lambda a, b: a * b, argnums=-1)(2.0, 5.0).item() == 2.0


def test_value_and_grad_of_structures_with_aux():
    def f(params):
        return ops.sum(params["w"] * params["b"][0]), {"seen": params["w"] * 2}

    (value, aux), slopes = value_and_grad(f, has_aux=True)(
        {"w": np.ones(2), "b": [np.full(2, 3.0)]}
    )
    assert value.item() == 6.0
    assert aux["seen"].tolist() == [2.0, 2.0]
    assert slopes["w"].tolist() == [3.0, 3.0]
    assert slopes["b"][0].tolist() == [1.0, 1.0]


def test_value_and_grad_of_variables():
    v, w, fixed = Variable([1.0, 2.0]), Variable(3.0), Variable(1.0, trainable=False)

    def loss():
        return ops.sum(v * w) * fixed

    value, slopes = value_and_grad(loss, argnums=None)()
    assert value.item() == 9.0
    assert set(slopes) == {v, w}
    assert slopes[w].item() == 3.0
    _, chosen = value_and_grad(loss, argnums=None, variables=[w])()
    assert [g.item() for g in chosen] == [3.0]


def test_unused_argument_has_zero_gradient():
    _, slope = value_and_grad(lambda a, b: a * 2, argnums=(1,))(1.0, np.ones(3))
    assert slope[0].tolist() == [0.0, 0.0, 0.0]


def test_value_and_grad_errors():
    with pytest.raises(ShapeError, match="one number"):
        grad(lambda x: x * 2)(np.ones(2))
    with pytest.raises(ValueError, match="argnums"):
        grad(lambda x: x, argnums=3)(1.0)


def test_grad_inside_backward():
    x = Tensor(2.0, requires_grad=True)
    slope = grad(lambda t: t**3)(x)
    slope.backward()
    assert x.grad.item() == 12.0


# --- custom gradients -----------------------------------------------------------------------------


def test_custom_gradient():
    @custom_gradient
    def clipped(x):
        return x * 1.0, lambda upstream: ops.clip(upstream, -1.0, 1.0)

    assert grad(lambda x: clipped(x) * 5.0)(2.0).item() == 1.0
    assert ops.custom_gradient is not None


def test_custom_gradient_with_several_arguments_and_results():
    @custom_gradient
    def both(a, b):
        def rule(first, second):
            return first * 10, second * 100

        return (a + b, a - b), rule

    da, db = grad(lambda a, b: sum(both(a, b), 0.0), argnums=(0, 1))(1.0, 2.0)
    assert (da.item(), db.item()) == (10.0, 100.0)


def test_custom_gradient_is_differentiable():
    @custom_gradient
    def square(x):
        return x * x, lambda upstream: upstream * x * 2

    x = Tensor(3.0, requires_grad=True)
    square(x).backward()
    assert x.grad.item() == 6.0


def test_custom_gradient_counts_gradients():
    @custom_gradient
    def wrong(a, b):
        return a + b, lambda upstream: upstream

    with pytest.raises(ValueError, match="1 gradients for 2 arguments"):
        grad(wrong)(1.0, 2.0)


# --- forward and by hand --------------------------------------------------------------------------


def test_jvp():
    def f(x, y):
        return ops.sin(x) * y

    x, y = np.array([0.5, 1.0]), np.array([2.0, 3.0])
    value, slope = jvp(f, (x, y), (np.array([1.0, 0.0]), np.array([0.0, 1.0])))
    np.testing.assert_allclose(value, np.sin(x) * y)
    np.testing.assert_allclose(slope, [np.cos(0.5) * 2, np.sin(1.0)])
    assert ops.jvp(lambda x: x * x, (3.0,), (1.0,))[1].item() == 6.0


def test_jvp_counts():
    with pytest.raises(ValueError, match="primals and"):
        jvp(lambda x: x, (1.0,), (1.0, 2.0))


def test_vjp():
    x = np.array([1.0, 2.0])
    result = vjp(lambda a: ops.square(a), [x], [np.array([1.0, 10.0])])
    np.testing.assert_allclose(result[0], [2.0, 40.0])


@pytest.mark.parametrize(
    ("shape", "into"),
    [((2, 3), (3,)), ((2, 3), (2, 1)), ((2, 3), ()), ((4, 2, 3), (2, 1)), ((), ())],
)
def test_sum_to_shape(shape, into):
    g = sum_to_shape(Tensor(np.ones(shape)), into)
    assert g.shape == into
    assert float(g.sum()) == np.prod(shape)


# --- gradient_check itself ------------------------------------------------------------------------


def test_gradient_check_finds_a_wrong_gradient():
    @custom_gradient
    def wrong(x):
        return x * x, lambda upstream: upstream * x * 2.01

    with pytest.raises(AssertionError, match=r"order 1: worst at input 0\[1\]"):
        gradient_check(wrong, [np.array([1.0, 2.0])])


def test_gradient_check_finds_a_wrong_second_gradient():
    @custom_gradient
    def once(x):
        return x * x, lambda upstream: upstream * ops.stop_gradient(x) * 2

    gradient_check(once, [np.array([1.0, 2.0])], order=1)
    with pytest.raises(AssertionError, match="order 2"):
        gradient_check(once, [np.array([1.0, 2.0])])


@pytest.mark.parametrize("inner", ["vjp", "jvp", "grad", "cond"])
def test_a_reverse_pass_inside_another_ends_at_its_arguments(inner):
    """What computed the arguments belongs to the outer pass, or a chain takes 2 ** n rules."""
    calls = []

    @custom_gradient
    def counted(x):
        def rule(upstream):
            calls.append(1)
            return upstream * 2.0

        return x * 2.0, rule

    def step(x):
        if inner == "vjp":
            return vjp(lambda x: x * x, [x], [kerasish.ops.ones(())])[0]
        if inner == "jvp":
            return jvp(lambda x: x * x, (x,), (1.0,))[1]
        if inner == "grad":
            return grad(lambda x: x * x)(x)
        return ops.cond(x > 0, lambda: x * 2.0, lambda: x * 3.0)

    def chain(x):
        x = counted(x)
        for _ in range(8):
            x = step(x)
        return x

    kerasish.config.set_backend("static")
    assert kerasish.function(grad(chain))(np.float32(1.0)).item() == 2.0**9
    assert len(calls) == 1


def test_gradient_check_of_structures():
    params = {"a": np.array([1.0, 2.0]), "b": [np.array([3.0, 4.0])]}
    gradient_check(lambda p: {"y": p["a"] * p["b"][0]}, [params])
    with pytest.raises(ValueError, match="floating"):
        gradient_check(lambda n: n, [[1, 2]])


def test_mixed_precision_gradients_have_the_leafs_dtype():
    v = Variable(np.ones(3, "float32"))
    with GradientTape() as tape:
        loss = ops.sum(ops.cast(v, "float16") * 2)
    assert tape.gradient(loss, v).dtype == "float32"


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_custom_gradient_of_another_dtype_becomes_that_of_its_argument(dtype):
    @custom_gradient
    def doubled(x):
        return x * 2, lambda upstream: ops.cast(upstream, "float32") * 2

    v = Variable(np.ones(3, dtype), dtype=dtype)
    with GradientTape() as tape:
        loss = ops.sum(doubled(v))
    slope = tape.gradient(loss, v)
    assert slope.dtype == dtype and slope.tolist() == [2.0] * 3


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_no_gradient_flows_back_through_whole_numbers(dtype):
    v = Variable([1.5, 2.5])
    with GradientTape(persistent=True) as tape:
        whole = ops.cast(v * 2, dtype)
        back = ops.cast(whole, "float32")
    assert tape.gradient(whole, v) is None
    assert tape.gradient(back, v) is None
    assert tape.gradient(whole, v, unconnected_gradients="zero").tolist() == [0.0, 0.0]


def test_the_root_exports():
    for name in ("grad", "value_and_grad", "GradientTape", "custom_gradient"):
        assert hasattr(kerasish, name)
