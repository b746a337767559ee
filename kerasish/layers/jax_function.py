"""Functions of JAX, and modules of Flax, as layers: JAX computes them, on both engines."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kerasish import config, ops, random, registry, tree
from kerasish.engine.layer.layer import Layer
from kerasish.layers.host_call import HostCall
from kerasish.ops.shapes import Spec
from kerasish.tensor import Variable

_ARGUMENTS = ("params", "state", "rng", "inputs", "training")


class JaxLayer(Layer):
    """A function of JAX as a layer; JAX compiles it and its derivatives, on the CPU.

    The arrays of `params` become trainable weights, those of `state` weights that are not trained.
    In a compiled step the function is one call of Python; the rest stays native. Derivatives
    compute the function again, with the same `rng`. Second derivatives raise.

    Args:
        call_fn: the function. It takes, by these names, `inputs` and any of `params`, `state`,
            `rng` (a key of JAX; None where not training) and `training` (a bool), and returns the
            outputs; with `state`: (outputs, new state).
        init_fn: a function of `inputs` (ones in the shape of the inputs), and of `rng` and
            `training` if it has them, that returns the first params; with `state`: (params, state).
            None: `params`, or `state`, are given.
        params: structure of arrays, the trained ones; None: made by `init_fn`.
        state: structure of arrays, those that are not trained; None: made by `init_fn`.
        seed: the seed of `rng`, an integer; None: one of the process's sequence.
        native_serialization_platforms: accepted as in Keras, where it concerns TensorFlow.
        kwargs: `name`, `dtype` and what else layers take.

    Shape: what `call_fn` takes -> what it returns: a tensor or a structure of tensors.

    Raises:
        ImportError: JAX is not installed.
        ValueError: an argument of the functions has another name; there are no params and no
            `init_fn`.

    Example:
        >>> import jax.numpy as jnp  # doctest: +SKIP
        >>> def affine(params, inputs):
        ...     return inputs @ params["w"]
        >>> layer = JaxLayer(affine, params={"w": jnp.ones((3, 2))})  # doctest: +SKIP
        >>> layer(ops.ones((4, 3))).shape  # doctest: +SKIP
        (4, 2)
    """

    _serialized = ("call_fn", "init_fn")  # what `from_config` finds by its registered name

    def __init__(
        self,
        call_fn: Callable[..., Any],
        init_fn: Callable[..., Any] | None = None,
        params: Any = None,
        state: Any = None,
        seed: int | None = None,
        native_serialization_platforms: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.call_fn, self.init_fn, self.seed = call_fn, init_fn, seed
        self.native_serialization_platforms = native_serialization_platforms
        self._names = self._arguments_of(call_fn, "call_fn", _ARGUMENTS)
        self._init_names = self._arguments_of(init_fn, "init_fn", _ARGUMENTS[2:])
        self._ops: dict[Any, _FunctionCall] = {}
        needed = [n for n in ("params", "state") if n in self._names]
        if needed and init_fn is None and params is None and state is None:
            raise ValueError(
                f"{self.display_name()}: call_fn takes {' and '.join(needed)}; give them, or an "
                "init_fn that makes them."
            )
        self.seed_generator = random.SeedGenerator(seed) if "rng" in self._names else None
        self._leaves = _Leaves(), _Leaves()
        if params is not None or state is not None:
            self._keep(params, state)

    def _arguments_of(self, function: Any, what: str, known: Sequence[str]) -> list[str]:
        if function is None:
            return []
        names = list(inspect.signature(function).parameters)
        wrong = [n for n in names if n not in known]
        if wrong or "inputs" not in names:
            raise ValueError(
                f"{self.display_name()}: {what} takes the arguments {names}; it has to take "
                f"'inputs', and may take {[n for n in known if n != 'inputs']}."
            )
        return names

    def _keep(self, params: Any, state: Any) -> None:
        self._leaves = self._variables(params, True), self._variables(state, False)
        self.built = True

    def _variables(self, values: Any, trainable: bool) -> _Leaves:
        jax = _jax()
        flat, definition = jax.tree_util.tree_flatten(values)
        leaves = []
        for value in flat:
            if not isinstance(value, (np.ndarray, np.generic, jax.Array, bool, int, float)):
                leaves.append(value)  # an option of the function's, no number
                continue
            array = np.asarray(value)
            leaves.append(
                self.add_weight(
                    shape=array.shape,
                    initializer=lambda shape, dtype=None, a=array: ops.convert_to_tensor(a, dtype),
                    dtype=None if "float" in array.dtype.name else array.dtype.name,
                    trainable=trainable,
                )
            )
        return _Leaves(leaves, definition)

    @property
    def params(self) -> Any:
        """The trained variables, in the structure of `params`; None before they are made."""
        return self._leaves[0].structure()

    @property
    def state(self) -> Any:
        """The variables that are not trained, in the structure of `state`."""
        return self._leaves[1].structure()

    def build(self, input_shape: Any) -> None:
        """Make the weights that `init_fn` gives for inputs of a shape."""
        if self.init_fn is None or self.built or self._leaves[0].leaves or self._leaves[1].leaves:
            return
        numpy: Any = _jax().numpy
        ones = tree.map_shape_structure(
            lambda shape: numpy.ones([1 if s is None else s for s in shape]), input_shape
        )
        given: dict[str, Callable[[], Any]] = {
            "rng": self._get_init_rng,
            "inputs": lambda: ones,
            "training": lambda: True,
        }
        result = self.init_fn(**{n: given[n]() for n in self._init_names})
        params, state = result if "state" in self._names else (result, None)
        self._keep(params, state)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """Run the function on a tensor, or a structure of tensors."""
        training = bool(training)
        rng = self._get_call_rng(training) if "rng" in self._names else None
        parts = [*(w.values() for w in self._leaves), *(_Leaves(*_flat(p)) for p in (inputs, rng))]
        definitions = tuple(p.definition for p in parts)
        options = tuple(None if _is_numbers(x) else x for p in parts for x in p.leaves)
        key = (training, repr(definitions), options)
        run = self._ops.get(key)
        if run is None:
            run = self._ops[key] = _FunctionCall(self, training, parts, options)
        outputs, changed = run([x for p in parts for x in p.leaves if _is_numbers(x)])
        variables = [v for v in self._leaves[1].leaves if isinstance(v, Variable)]
        for variable, value in zip(variables, changed):
            variable.assign(value)
        return outputs

    def _get_init_rng(self) -> Any:
        return self._first_key(0)

    def _first_key(self, number: int) -> np.ndarray:
        """Return a key of JAX that is no tensor: a layer may be built inside a trace."""
        seed = config.next_seed() if self.seed is None else self.seed
        return np.array([seed % 2**32, number], np.uint32)

    def _get_call_rng(self, training: bool) -> Any:
        return self.seed_generator.next() if training and self.seed_generator else None

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the functions by their registered names."""
        result = super().get_config()
        result.pop("seed", None)
        for name in ("params", "state"):
            result.pop(name, None)
        for name in ("call_fn", "init_fn"):
            result[name] = registry.serialize_keras_object(getattr(self, name))
        return result

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Return the layer that `get_config` describes; its functions are registered ones."""
        config = dict(config)
        for name in cls._serialized:
            if not callable(config.get(name)) and config.get(name) is not None:
                config[name] = registry.deserialize_keras_object(config[name], custom_objects)
        return cls(**config)


class FlaxLayer(JaxLayer):
    """A module of Flax (`flax.linen`) as a layer.

    The collection "params" is trained; the others are state. Modules get the random numbers of
    "params" and "dropout" when they are initialized, and of "dropout" in training.

    Args:
        module: the module. Its method takes the inputs and, if it likes, `training`.
        method: the method that is called, a name or a function; None: `__call__`.
        variables: dict of collections, already initialized; None: made for the first inputs.
        kwargs: what `JaxLayer` takes but its functions.

    Shape: what the module takes -> what it returns.

    Raises:
        ImportError: JAX or Flax is not installed.

    Example:
        >>> import flax.linen as nn  # doctest: +SKIP
        >>> FlaxLayer(nn.Dense(2))(ops.ones((4, 3))).shape  # doctest: +SKIP
        (4, 2)
    """

    _serialized = ("module", "method")

    def __init__(
        self, module: Any, method: Any = None, variables: Any = None, **kwargs: Any
    ) -> None:
        _jax()
        try:
            from flax.linen import DenyList
        except ImportError as error:
            raise ImportError(
                "FlaxLayer runs modules of Flax, which is not installed: pip install flax."
            ) from error
        self.module, self.method = module, method
        function = getattr(module, method) if isinstance(method, str) else method
        signature = inspect.signature(function or module.__call__)
        options = {"method": method, "mutable": DenyList(["params"])}

        def apply(params: Any, state: Any, rng: Any, inputs: Any, training: bool) -> Any:
            more = {"training": training} if "training" in signature.parameters else {}
            return module.apply(
                {**(params or {}), **(state or {})}, inputs, rngs=rng or {}, **options, **more
            )

        def init(rng: Any, inputs: Any, training: bool) -> Any:
            more = {"training": training} if "training" in signature.parameters else {}
            return _split(module.init(rng, inputs, method=method, **more))

        params, state = (None, None) if variables is None else _split(variables)
        super().__init__(call_fn=apply, init_fn=init, params=params, state=state, **kwargs)

    def _get_init_rng(self) -> Any:
        return {"params": self._first_key(0), "dropout": self._first_key(1)}

    def _get_call_rng(self, training: bool) -> Any:
        return {"dropout": super()._get_call_rng(training)} if training else {}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the module must be a registered, serializable one."""
        result = super().get_config()
        for name in ("call_fn", "init_fn", "variables"):
            result.pop(name, None)
        method = self.method
        if getattr(method, "__self__", None) is self.module and method is not None:
            method = method.__name__
        result["module"] = registry.serialize_keras_object(self.module)
        result["method"] = registry.serialize_keras_object(method)
        return result


class _Leaves:
    """The leaves of a structure as JAX takes it apart, and how to put them together again."""

    def __init__(self, leaves: Sequence[Any] = (), definition: Any = None) -> None:
        self.leaves, self.definition = list(leaves), definition

    def structure(self, leaves: Sequence[Any] | None = None) -> Any:
        if self.definition is None:
            return None
        return _jax().tree_util.tree_unflatten(
            self.definition, self.leaves if leaves is None else leaves
        )

    def values(self) -> _Leaves:
        """Return the same with tensors in place of variables."""
        read = [ops.convert_to_tensor(x) if isinstance(x, Variable) else x for x in self.leaves]
        return _Leaves(read, self.definition)


class _FunctionCall(HostCall):
    """A function of JAX on one structure of arguments, as an op of lists of arrays."""

    def __init__(
        self, layer: JaxLayer, training: bool, parts: Sequence[_Leaves], options: tuple[Any, ...]
    ) -> None:
        self.name = layer.display_name()
        self.function, self.names = layer.call_fn, layer._names
        self.training, self.parts, self.options = training, list(parts), options
        self.count = 0  # outputs that are no state
        jax = _jax()
        self.run = jax.jit(self._apply)
        self.pull_back = jax.jit(self._derivatives)
        # Where the inputs of each part begin: derivatives go to params and inputs.
        sizes = [sum(map(_is_numbers, p.leaves)) for p in parts]
        ends = np.cumsum([0, *sizes]).tolist()
        self.differentiated = [*range(ends[0], ends[1]), *range(ends[2], ends[3])]

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
        inputs = [ops.convert_to_tensor(x) for x in inputs]
        if self.op is None:
            specs = [Spec(tuple(int(s or 2) for s in t.shape), t.dtype) for t in inputs]
            total = len(self._infer(*specs))
            self._make(specs, total)
        return self._run(inputs)

    def _apply(self, *arrays: Any) -> list[Any]:
        rest = iter(arrays)
        leaves = iter([next(rest) if o is None else o for o in self.options])
        values = [p.structure([next(leaves) for _ in p.leaves]) for p in self.parts]
        given = dict(zip(("params", "state", "inputs", "rng"), values), training=self.training)
        result = self.function(**{n: given[n] for n in self.names})
        flatten = _jax().tree_util.tree_flatten
        outputs, state = result if "state" in self.names else (result, None)
        flat, definition = flatten(outputs)
        self.structure = _jax().tree_util.tree_unflatten(definition, [0] * len(flat))
        self.count = len(flat)
        changed, definition = flatten(state)
        if "state" in self.names and definition != self.parts[1].definition:
            raise ValueError(
                f"{self.name}: call_fn returned a state of the structure {definition}, the layer's "
                f"is {self.parts[1].definition}."
            )
        numbers = [c for c, old in zip(changed, self.parts[1].leaves) if _is_numbers(old)]
        return [*flat, *numbers]

    def _infer(self, *specs: Spec) -> list[Spec]:
        jax = _jax()
        given = [jax.ShapeDtypeStruct(tuple(map(int, s.shape)), s.dtype) for s in specs]
        return [Spec(tuple(y.shape), y.dtype.name) for y in jax.eval_shape(self._apply, *given)]

    def _forward(self, *arrays: np.ndarray) -> list[np.ndarray]:
        return [np.asarray(y) for y in self.run(*arrays)]

    def _differentiable(self, inputs: Sequence[Any]) -> list[int]:
        return [k for k in self.differentiated if "float" in str(inputs[k].dtype)]

    def _output_count(self) -> int:
        return self.count

    def _derivatives(self, arriving: Any, arrays: Any) -> Any:
        jax = _jax()
        places = self._differentiable(arrays)

        def of_floats(*values: Any) -> list[Any]:
            given = list(arrays)
            for place, value in zip(places, values):
                given[place] = value
            outputs = self._apply(*given)[: self.count]
            return [y for y in outputs if "float" in str(y.dtype)]

        _, pull_back = jax.vjp(of_floats, *(arrays[k] for k in places))
        return pull_back([g for g in arriving if "float" in str(g.dtype)])

    def _backward(self, *arrays: np.ndarray) -> list[np.ndarray]:
        grads = self.pull_back(list(arrays[: self.count]), list(arrays[self.count :]))
        return [np.asarray(g) for g in grads]


def _split(variables: Any) -> tuple[Any, Any]:
    """Return the trained and the other collections of Flax's variables."""
    trained = {k: v for k, v in variables.items() if k == "params"}
    return trained, {k: v for k, v in variables.items() if k != "params"}


def _flat(structure: Any) -> tuple[list[Any], Any]:
    flat, definition = _jax().tree_util.tree_flatten(structure)
    return flat, definition


def _is_numbers(x: Any) -> bool:
    return ops.is_tensor(x) or isinstance(x, (Variable, np.ndarray))


def _jax() -> Any:
    try:
        import jax
    except ImportError as error:
        raise ImportError(
            "JaxLayer and FlaxLayer run functions of JAX, which is not installed: pip install jax."
        ) from error
    return jax
