"""Tensors and variables: what they are made of, their operators, and NumPy's and DLPack's ways."""

from __future__ import annotations

import copy
import gc
import operator
import pickle
import threading
import tracemalloc

import numpy as np
import pytest

import kerasish
from kerasish import Tensor, Variable, ops
from kerasish.errors import DTypeError, ShapeError
from kerasish.tensor import (
    VariableScope,
    autocast,
    convert,
    name_scope,
    no_gradient,
    using_scope,
)

# --- making ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shape", "dtype"),
    [
        (1, (), "int32"),
        (2**40, (), "int64"),
        (1.5, (), "float32"),
        (True, (), "bool"),
        ([1, 2], (2,), "int32"),
        ([[1.0], [2.0]], (2, 1), "float32"),
        ([], (0,), "float32"),
        (np.float64(1.0), (), "float64"),
        (np.zeros((2, 3)), (2, 3), "float64"),
        (np.arange(3, dtype="uint8"), (3,), "uint8"),
        (range(3), (3,), "int64"),
        ((1, 2.5), (2,), "float32"),
        (1j, (), "complex64"),
    ],
    ids=str,
)
def test_values_give_shapes_and_dtypes(value, shape, dtype):
    x = Tensor(value)
    assert (x.shape, x.dtype, x.ndim, x.size) == (shape, dtype, len(shape), int(np.prod(shape)))
    assert x.device == "cpu"


def test_lists_of_tensors_are_stacked():
    x = ops.convert_to_tensor([Tensor([1.0, 2.0]), [3.0, 4.0]])
    assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("bad", ["text", pytest.param(object(), id="object"), ["a"]], ids=str)
def test_what_is_no_number_raises(bad):
    with pytest.raises(DTypeError):
        Tensor(bad)


def test_ragged_lists_raise():
    with pytest.raises(ShapeError, match="unequal"):
        Tensor([[1], [1, 2]])


def test_floatx_is_the_default_float():
    def made():
        return [
            Tensor(1.0), ops.zeros(2), ops.arange(2.0), ops.ones(2, "float"), ops.one_hot([1], 3),
            ops.mean([1, 2]), ops.divide([1], [2]), ops.cast([1], float),
        ]  # fmt: skip

    assert {x.dtype for x in made()} == {"float32"}
    kerasish.config.set_floatx("float64")
    try:
        assert {x.dtype for x in made()} == {"float64"}
    finally:
        kerasish.config.set_floatx("float32")
    assert {x.dtype for x in made()} == {"float32"}


def test_bfloat16():
    x = Tensor([1.0, 2.0], "bfloat16")
    assert x.dtype == "bfloat16"
    assert (x * 2).dtype == "bfloat16"
    assert ops.matmul(x, x).dtype == "bfloat16"
    assert ops.cast(x, "float32").tolist() == [1.0, 2.0]


# --- operators ------------------------------------------------------------------------------

A = np.array([[3.0, -2.0], [1.5, 4.0]], "float32")
B = np.array([[2.0, 1.0], [0.5, 3.0]], "float32")
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "matmul"]
COMPARE = ["eq", "ne", "lt", "le", "gt", "ge"]


@pytest.mark.parametrize("name", BINARY + COMPARE)
@pytest.mark.parametrize("kind", [Tensor, Variable])
def test_binary_operators(name, kind):
    f = getattr(operator, name)
    expected = f(A, B)
    for result in (f(kind(A), B), f(A, kind(B)), f(kind(A), kind(B)), f(kind(A), Tensor(B))):
        assert isinstance(result, Tensor)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"])
def test_numbers_on_both_sides(name):
    f = getattr(operator, name)
    for number in (2, 2.0):
        np.testing.assert_allclose(f(Tensor(B), number), f(B, number), rtol=1e-6)
        np.testing.assert_allclose(f(number, Tensor(B)), f(number, B), rtol=1e-6)
        assert f(Tensor(B), number).dtype == "float32"


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_bits(name):
    f = getattr(operator, name)
    a, b = np.array([5, 6], "int32"), np.array([3, 1], "int32")
    np.testing.assert_array_equal(f(Tensor(a), b), f(a, b))
    if name in ("and_", "or_", "xor"):
        np.testing.assert_array_equal(f(Tensor(a > 5), b > 1), f(a > 5, b > 1))
        np.testing.assert_array_equal(f(a, Tensor(b)), f(a, b))


def test_unary():
    x = Tensor(A)
    np.testing.assert_array_equal(-x, -A)
    np.testing.assert_array_equal(abs(x), abs(A))
    np.testing.assert_array_equal(+x, A)
    np.testing.assert_array_equal(~Tensor([True, False]), [False, True])
    np.testing.assert_array_equal(~Tensor([1, 2]), [-2, -3])
    np.testing.assert_array_equal(round(Tensor([1.26]), 1), np.float32([1.3]))
    np.testing.assert_array_equal(x.T, A.T)
    np.testing.assert_array_equal(x.reshape(4), A.reshape(4))
    np.testing.assert_array_equal(x.reshape(1, -1), A.reshape(1, -1))
    assert x.astype("int32").dtype == "int32"
    for name in ("sum", "mean", "max", "min"):
        np.testing.assert_allclose(getattr(x, name)(axis=0), getattr(A, name)(axis=0))


def test_equality_with_none_is_plain():
    assert (Tensor([1]) == None) is False  # noqa: E711 (the operator is what is tested)
    assert (Tensor([1]) != None) is True  # noqa: E711
    assert len({Tensor([1]), Tensor([1])}) == 2


# --- as Python's and NumPy's values ---------------------------------------------------------------


def test_numbers_from_tensors():
    assert float(Tensor(1.5)) == 1.5
    assert int(Tensor([3])) == 3
    assert complex(Tensor(2.0)) == 2
    assert bool(Tensor(0.0)) is False
    assert [10, 20][Tensor(1)] == 20
    assert f"{Tensor(1.5):.2f}" == "1.50"
    assert Tensor([[1, 2]]).tolist() == [[1, 2]]
    with pytest.raises(ShapeError, match="one element"):
        float(Tensor([1.0, 2.0]))
    with pytest.raises(TypeError, match="integer"):
        operator.index(Tensor(1.0))


def test_len_and_iteration():
    assert len(Tensor([[1], [2]])) == 2
    assert [row.tolist() for row in Tensor([[1], [2]])] == [[1], [2]]
    with pytest.raises(TypeError, match="no length"):
        len(Tensor(1.0))


def test_numpy_sees_tensors():
    x = Tensor(A)
    np.testing.assert_array_equal(np.asarray(x), A)
    assert np.asarray(x, dtype="float64").dtype == np.float64
    assert np.array(x).flags.writeable
    assert not x.numpy().flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 0
    np.testing.assert_array_equal(np.concatenate([x, x]), np.concatenate([A, A]))
    # NumPy's operators give way to the tensor's.
    assert isinstance(A + x, Tensor)
    assert isinstance(np.float32(2) * x, Tensor)


def test_repr_tells_shape_and_dtype():
    assert repr(Tensor([1.0])) == "Tensor([1.], shape=(1,), dtype=float32)"
    assert "path=w" in repr(Variable([1.0], name="w"))


def test_dlpack_with_numpy():
    x = Tensor(A)
    seen = np.from_dlpack(x)
    np.testing.assert_array_equal(seen, A)
    np.testing.assert_array_equal(convert(np.from_dlpack(np.arange(3))), [0, 1, 2])


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: extra bench")
    np.testing.assert_array_equal(torch.from_dlpack(Tensor(A)).numpy(), A)
    np.testing.assert_array_equal(Tensor(torch.tensor([1.0, 2.0])), [1.0, 2.0])


def test_foreign_arrays_by_dlpack_alone():
    class Foreign:
        def __dlpack__(self, **options):
            return A.__dlpack__(**options)

        def __dlpack_device__(self):
            return A.__dlpack_device__()

    np.testing.assert_array_equal(convert(Foreign()), A)


@pytest.mark.parametrize(
    "again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy]
)
def test_copies_of_tensors(again):
    x = Tensor(A)
    y = again(x)
    np.testing.assert_array_equal(y, A)
    assert y.dtype == x.dtype


def test_keras_mask_can_be_attached():
    x = Tensor(A)
    x._keras_mask = Tensor([True])
    assert x._keras_mask.tolist() == [True]


# --- variables ------------------------------------------------------------------------------


def test_variable_assignments():
    v = Variable([1.0, 2.0], name="v")
    assert v.assign([3.0, 4.0]).tolist() == [3.0, 4.0]
    assert v.assign_add(1).tolist() == [4.0, 5.0]
    assert v.assign_sub([1.0, 2.0]).tolist() == [3.0, 3.0]
    assert v.numpy().tolist() == [3.0, 3.0]
    with pytest.raises(ShapeError, match=r"'v'.*\(2,\).*\(3,\)"):
        v.assign([1.0, 2.0, 3.0])
    assert v.numpy().tolist() == [3.0, 3.0]


def test_variable_keeps_its_dtype():
    v = Variable(np.zeros(2, "float16"))
    v.assign(np.ones(2, "float64"))
    assert v.dtype == v.value.dtype == "float16"


def test_a_step_assigns_values_of_the_variables_dtype_and_shape():
    v, scope = Variable([1.0, 2.0]), VariableScope()
    with using_scope(scope):
        for value in (Tensor([1.5, 2.5]), Tensor(np.array([1.5, 2.5])), [1.5, 2.5]):
            v.assign(0 * v)
            assert v.assign(value).tolist() == v.value.tolist() == [1.5, 2.5]
            assert v.value.dtype == "float32"
        with pytest.raises(ShapeError, match=r"\(2,\), cannot assign \(3,\)"):
            v.assign(ops.ones((3,)))
        assert v.latest.tolist() == [1.0, 2.0]
    scope.commit()
    assert v.numpy().tolist() == [1.5, 2.5]


def test_variable_does_not_share_the_users_array():
    array = np.ones(2, "float32")
    v = Variable(array)
    array[0] = 9
    assert v.numpy().tolist() == [1, 1]
    v.assign(array)
    array[1] = 9
    assert v.numpy().tolist() == [9, 1]


def test_variable_from_initializer():
    v = Variable(lambda shape, dtype: np.full(shape, 2, dtype), shape=(2, 2), dtype="float32")
    assert v.shape == (2, 2)
    with pytest.raises(ValueError, match="shape"):
        Variable(lambda shape, dtype: np.zeros(shape))
    with pytest.raises(ShapeError):
        Variable([1.0], shape=(2,))


def test_variable_names_and_paths():
    with name_scope("outer"), name_scope("inner"):
        v = Variable(1.0, name="v")
    assert (v.name, v.path) == ("v", "outer/inner/v")
    with pytest.raises(ValueError, match="/"):
        Variable(1.0, name="a/b")


def test_autocast_reads_in_lower_precision():
    v, number = Variable([1.0]), Variable([1], dtype="int32")
    kept = Variable([1.0], autocast=False)
    with autocast("float16"):
        assert (v.value.dtype, v.dtype) == ("float16", "float16")
        assert (v + 1).dtype == "float16"
        assert number.value.dtype == "int32"
        assert kept.value.dtype == "float32"
        v.assign_add([1.0])
    assert v.dtype == "float32"
    assert v.numpy().tolist() == [2.0]


@pytest.mark.parametrize("again", [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
def test_copies_of_variables(again):
    v = Variable([1.0, 2.0], name="w", trainable=False)
    w = again(v)
    v.assign([5.0, 5.0])
    assert w.numpy().tolist() == [1.0, 2.0]
    assert (w.name, w.path, w.trainable) == ("w", "w", False)
    w.assign_add([1.0, 1.0])
    assert w.numpy().tolist() == [2.0, 3.0]


def test_a_copied_variable_is_another_leaf():
    v = Variable([1.0, 2.0])
    w = copy.deepcopy(v)
    ops.sum(v * 2 + w * 3).backward()
    assert v.grad.tolist() == [2.0, 2.0]
    assert w.grad.tolist() == [3.0, 3.0]


def test_tensor_methods_of_variables():
    v = Variable([[1.0, 2.0]])
    assert v.T.shape == (2, 1)
    assert float(v.sum()) == 3.0
    assert v[0, 1].item() == 2.0
    assert len(v) == 1
    with pytest.raises(AttributeError, match="no_such"):
        _ = v.no_such


# --- arrays that the user keeps writing to -------------------------------------------------------

_A = np.arange(6, dtype="float32").reshape(2, 3)
KEEPERS = {
    "Tensor": Tensor,
    "convert_to_tensor": ops.convert_to_tensor,
    "array": ops.array,
    "copy": ops.copy,
    "reshape": lambda a: ops.reshape(a, (3, 2)),
    "transpose": ops.transpose,
    "slice": lambda a: ops.slice(a, (0, 0), (1, 2)),
    "split": lambda a: ops.split(a, 2)[0],
    "unstack": lambda a: ops.unstack(a)[0],
    "broadcast_to": lambda a: ops.broadcast_to(a, (2, 2, 3)),
    "cast": lambda a: ops.cast(a, "float32"),
    "stop_gradient": ops.stop_gradient,
    "real": ops.real,
    "flip": lambda a: ops.flip(a, 0),
    "diagonal": ops.diagonal,
    "a view": lambda a: ops.convert_to_tensor(a[0]),
    "a read-only view": lambda a: ops.convert_to_tensor(np.broadcast_to(a, (4, 2, 3))),
    "an array-like": lambda a: ops.convert_to_tensor(_ArrayLike(a)),
    "a list of arrays": lambda a: ops.convert_to_tensor([a, a]),
    "variable": Variable,
}


class _ArrayLike:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize("name", KEEPERS)
def test_a_tensor_keeps_its_numbers(name):
    a = _A.copy()
    t = KEEPERS[name](a)
    before = np.array(t.numpy())
    a[:] = 100.0
    assert t.numpy().tolist() == before.tolist()
    assert a.flags.writeable


@pytest.mark.parametrize("name", [n for n in KEEPERS if n not in ("Tensor", "variable")])
def test_a_gradient_uses_the_numbers_of_its_call(name):
    a = _A.copy()
    x = Tensor(3.0, requires_grad=True)
    y = ops.sum(x * KEEPERS[name](a))
    direct = ops.sum(x * a) + ops.sum(x * a[0]) + ops.sum(x * _ArrayLike(a))
    expected = [float(y) / 3, float(direct) / 3]
    a[:] = 100.0
    y.backward()
    assert float(x.grad) == pytest.approx(expected[0])
    x.grad = None
    direct.backward()
    assert float(x.grad) == pytest.approx(expected[1])


def test_tensors_of_one_refilled_buffer_differ():
    buffer, created = np.zeros(2, "float32"), []
    for i in range(3):
        buffer[:] = i
        created.append(ops.convert_to_tensor(buffer))
    assert [t.tolist() for t in created] == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]


def test_what_takes_a_tensor_by_dlpack_shares_no_memory_with_it():
    t = Tensor([1.0, 2.0])
    taken = np.from_dlpack(t)
    assert taken.tolist() == [1.0, 2.0]
    assert not np.shares_memory(taken, t.numpy())


@pytest.mark.parametrize("size", [3, 300_000])
def test_a_trace_is_renewed_when_a_constant_changes(size):
    table = np.ones(size, "float32")
    f = kerasish.function(lambda x: x * table)
    assert f(np.float32(2.0))[:3].tolist() == [2.0, 2.0, 2.0]
    table[:] = 100.0
    assert f(np.float32(2.0))[:3].tolist() == [200.0, 200.0, 200.0]


# --- threads ----------------------------------------------------------------------------------


def test_threads_keep_their_gradients_apart():
    failures = []

    def work(number):
        try:
            v = Variable([float(number)])
            for _ in range(50):
                with kerasish.GradientTape() as tape:
                    y = v * v
                if tape.gradient(y, v).tolist() != [2.0 * number]:
                    failures.append(number)
        except Exception as error:  # noqa: BLE001 (reported below)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_no_gradient_is_the_threads_own():
    seen = []
    v = Variable([1.0])
    with no_gradient():
        thread = threading.Thread(target=lambda: seen.append((v * 2).tracked))
        thread.start()
        thread.join()
        seen.append((v * 2).tracked)
    assert seen == [True, False]


def test_numpy_stays_silent_inside_and_keeps_its_voice_outside():
    assert ops.log(Tensor([0.0])).tolist() == [-np.inf]
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        np.log(np.zeros(1))
    with np.errstate(divide="raise"):
        assert ops.divide(Tensor([1.0]), Tensor([0.0])).tolist() == [np.inf]


@pytest.mark.parametrize("kind", [Tensor, Variable])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min", "amax", "amin", "std", "prod"])
def test_reductions_of_numpy_take_tensors(name, kind):
    array = np.array([[1.0, 4.0], [2.0, 5.0]], "float32")
    for options in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}):
        result = getattr(np, name)(kind(array), **options)
        assert isinstance(result, (np.ndarray, np.generic))
        np.testing.assert_array_equal(result, getattr(np, name)(array, **options))
    assert isinstance(kind(array).mean(0), Tensor)


def test_name_scopes_of_one_caller_open_once():
    caller = object()
    with name_scope("a", caller=caller) as outer, name_scope("a", caller=caller):
        assert outer.name == "a" and Variable(1.0, name="w").path == "a/w"
        with name_scope("a"), name_scope("b", override_parent="/x/y"):
            assert Variable(1.0, name="w").path == "x/y/b/w"
    with name_scope("a", caller=caller), name_scope("a", caller=caller, deduplicate=False):
        assert Variable(1.0, name="w").path == "a/a/w"


@pytest.mark.parametrize("wrong", ["a/b", 3, None])
def test_names_of_scopes_are_single_parts(wrong):
    with pytest.raises(ValueError, match="name_scope"):
        name_scope(wrong)


def test_wrong_dtypes_are_value_errors_as_in_keras():
    with pytest.raises(ValueError, match="float"):
        kerasish.random.uniform((2,), dtype="int32")
    with pytest.raises(ValueError, match="no numbers"):
        np.asarray(kerasish.KerasTensor((2,)))


def test_only_variables_have_values_in_a_stateless_scope():
    with pytest.raises(ValueError, match=r"\(variable, value\)"):
        kerasish.StatelessScope([("w", 1.0)])


def test_variables_begin_with_named_initializers():
    w = Variable("ones", shape=(2,), dtype="float16")
    assert (w.tolist(), w.dtype) == ([1.0, 1.0], "float16")
    with pytest.raises(ValueError, match="initializer"):
        Variable("no such one", shape=(2,))


@pytest.mark.parametrize("convert_one", [bool, int, float])
def test_several_numbers_are_no_scalar(convert_one):
    for x in (ops.ones((2, 2)), Variable(np.ones((2, 2)))):
        with pytest.raises(TypeError, match="one element"):
            convert_one(x)


@pytest.mark.parametrize("wrong", [12, "a/b"])
def test_names_of_variables_are_strings(wrong):
    with pytest.raises(ValueError, match="name"):
        Variable(1.0, name=wrong)


# --- first zeros without memory -------------------------------------------------------------------


def large_zeros(**options):
    return Variable("zeros", shape=(300, 200), **options)


def allocated(make):
    """Return the bytes of arrays that a function leaves allocated."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = make()
        size = tracemalloc.get_traced_memory()[0]
        del kept
        return size
    finally:
        tracemalloc.stop()


def test_large_zeros_need_no_memory_until_they_are_read():
    assert allocated(large_zeros) < 10_000
    v = large_zeros(dtype="float64", trainable=False)
    assert (v.shape, v.dtype, v.ndim) == ((300, 200), "float64", 2)
    assert allocated(lambda: v.value) > 8 * 60_000
    assert v.value is v.value  # made once
    assert not v.numpy().any()


@pytest.mark.parametrize("use", [
    lambda v: v.assign(np.ones((300, 200))), lambda v: v.assign_add(np.ones((300, 200))),
])  # fmt: skip
def test_large_zeros_are_assigned_like_other_values(use):
    v = large_zeros()
    use(v)
    np.testing.assert_array_equal(v.numpy(), np.ones((300, 200)))
    assert v.recipe() is None


def test_large_zeros_are_copied_and_pickled():
    v = large_zeros(name="v")
    for other in (copy.deepcopy(v), pickle.loads(pickle.dumps(v))):
        other.assign_add(np.ones((300, 200)))
        assert other.numpy().all() and not v.numpy().any()
    np.testing.assert_array_equal(large_zeros().recipe()(), np.zeros((300, 200)))


def test_large_zeros_have_the_initializers_errors():
    with pytest.raises(ValueError, match="-300"):
        Variable("zeros", shape=(-300, 300))


@pytest.mark.parametrize("backend", ["static", "eager"])
def test_steps_begin_with_large_zeros(backend):
    v, w = large_zeros(), large_zeros()

    def step(x):
        v.assign_add(x)
        w.assign(w * 2.0 + v)
        return ops.sum(w)

    compiled = kerasish.backends.get(backend).compile(step)
    x = np.ones((300, 200), "float32")
    assert [float(compiled(x)) for _ in range(3)] == [60_000.0, 240_000.0, 660_000.0]
    assert v.numpy()[0, 0] == 3.0 and w.numpy()[-1, -1] == 11.0
    v.assign(np.zeros((300, 200)))
    assert float(compiled(x)) == 60_000.0 * 23


def test_a_step_clears_a_buffer_that_was_written():
    v = large_zeros()

    def step(x):
        v.assign_add(x)

    compiled = kerasish.backends.get("static").compile(step)
    compiled(np.ones((300, 200), "float32"))
    v._zeros, v._current, v.in_buffer = (v.shape, v.dtype), None, False
    compiled(np.ones((300, 200), "float32"))
    assert (v.numpy() == 1.0).all()
