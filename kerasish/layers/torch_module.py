"""A module of PyTorch as a layer: its parameters are the layer's weights, on both engines."""

from __future__ import annotations

import base64
import io
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from kerasish import ops, random, tree
from kerasish.engine.layer.layer import Layer
from kerasish.layers.host_call import HostCall
from kerasish.ops.shapes import Spec
from kerasish.tensor import Variable

# Torch runs one module at a time: train() and eval() change the module itself.
_lock = threading.RLock()


class TorchModuleWrapper(Layer):
    """A `torch.nn.Module` as a layer; PyTorch computes it and its derivatives on the CPU.

    The module's parameters become trainable weights, its buffers (running means, for example)
    weights that are not trained. Optimizers, callbacks, files and distribution treat them like any
    others. In a compiled step the module is one call of Python; the rest stays native. Derivatives
    compute the module again, with the same random numbers: dropout of PyTorch repeats when a
    run is repeated or resumed. Second derivatives raise.

    Args:
        module: the module. Lazy modules must have been called once.
        name: the layer's name; None: one is made.
        output_shape: the result's shape with the batch axis (None), for modules that PyTorch cannot
            run without numbers (on its device "meta"); None: determined by such a run.
        kwargs: `dtype`, `trainable` and what else layers take.

    Shape: what the module takes -> what it returns: a tensor, or a tuple, list or dict of them.

    Raises:
        ImportError: PyTorch is not installed.
        ValueError: the module is lazy and has no parameters yet.

    Example:
        >>> import torch  # doctest: +SKIP
        >>> layer = TorchModuleWrapper(torch.nn.Linear(3, 2))  # doctest: +SKIP
        >>> layer(ops.ones((4, 3))).shape  # doctest: +SKIP
        (4, 2)
    """

    def __init__(
        self, module: Any, name: str | None = None, output_shape: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(name=name, **kwargs)
        torch = _torch()
        if not isinstance(module, torch.nn.Module):
            raise ValueError(
                f"{self.display_name()}: expected a torch.nn.Module, got {type(module).__name__}."
            )
        lazy = torch.nn.parameter.is_lazy
        if any(map(lazy, (*module.parameters(), *module.buffers()))):
            raise ValueError(
                f"{self.display_name()}: the module is lazy and has no parameters yet. Call it "
                "once on an example, then wrap it."
            )
        self.output_shape_given = output_shape
        self._module = module.to("cpu")
        self._ops: dict[Any, _ModuleCall] = {}
        self._parameters = {
            n: self._add(n, p, p.requires_grad) for n, p in module.named_parameters()
        }
        self._buffers = {n: self._add(n, b, False) for n, b in module.named_buffers()}
        self.built = True

    def _add(self, name: str, value: Any, trainable: bool) -> Variable:
        array = to_numpy(value)
        return self.add_weight(
            shape=array.shape,
            initializer=lambda shape, dtype=None: ops.convert_to_tensor(array, dtype),
            dtype=array.dtype.name,
            trainable=trainable,
            name=name.replace(".", "_"),
        )

    @property
    def module(self) -> Any:
        """The module, with this layer's present weights in it."""
        torch = _torch()
        with _lock, torch.no_grad():
            values = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
            for name, variable in (*self._parameters.items(), *self._buffers.items()):
                values[name].copy_(to_torch(variable.numpy()))
        return self._module

    def parameters(self, recurse: bool = True) -> Any:
        """Return the parameters of `module`, an iterator of torch's, with the present numbers.

        Args:
            recurse: whether those of modules inside it are among them.
        """
        return self.module.parameters(recurse=recurse)

    def call(self, *args: Any, training: bool | None = None, **kwargs: Any) -> Any:
        """Run the module on `args` and `kwargs`, tensors or structures of them."""
        leaves = tree.flatten((args, kwargs))
        tensors = [ops.convert_to_tensor(x) for x in leaves if _is_numbers(x)]
        rest = tuple(None if _is_numbers(x) else x for x in leaves)
        structure = tree.map_structure(lambda x: 0, (args, kwargs))
        key = (bool(training), repr(structure), rest)
        run = self._ops.get(key)
        if run is None:
            run = self._ops[key] = _ModuleCall(self, bool(training), (args, kwargs), rest)
        # Read as Variable.value is: in the compute dtype, inside steps the step's own values.
        parameters = [ops.convert_to_tensor(v) for v in self._parameters.values()]
        buffers = [v.value for v in self._buffers.values()]
        seed = random.draw_seed(None) if training else np.zeros(2, "uint32")
        outputs, changed = run(parameters, buffers, tensors, seed)
        for variable, value in zip(self._buffers.values(), changed):
            variable.assign(value)
        return outputs

    def save_own_variables(self, store: Any) -> None:
        """Write the module's state under PyTorch's names, as Keras does."""
        for name, variable in (*self._parameters.items(), *self._buffers.items()):
            store[name] = variable.numpy()

    def load_own_variables(self, store: Any) -> None:
        """Read what `save_own_variables` wrote."""
        expected = {**self._parameters, **self._buffers}
        stored = {k.decode() if isinstance(k, bytes) else k for k in store}
        if stored != expected.keys():
            raise ValueError(
                f"{self.display_name()}: expected the weights {sorted(expected)}, the file has "
                f"{sorted(stored)}."
            )
        for name, variable in expected.items():
            variable.assign(np.asarray(store[name]))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the module as Keras writes it, a pickle in base64."""
        buffer = io.BytesIO()
        _torch().save(self.module, buffer)
        config = super().get_config()
        config["module"] = base64.b64encode(buffer.getvalue()).decode("ascii")
        config["output_shape"] = self.output_shape_given
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Return the layer of a config that holds the module itself.

        Raises:
            ValueError: the config holds the module as a pickle, as files do: that would be code.
        """
        if not hasattr(config.get("module"), "named_parameters"):
            raise ValueError(
                f'TorchModuleWrapper "{config.get("name")}" holds its module as a pickle. kerasish '
                "runs no code from files. Make the model in Python, with the module, and call "
                "model.load_weights() with this file."
            )
        return cls(**config)


class _ModuleCall(HostCall):
    """A module on one structure of arguments, as an op of lists of arrays."""

    def __init__(
        self, layer: TorchModuleWrapper, training: bool, example: Any, rest: tuple[Any, ...]
    ) -> None:
        self.module, self.training = layer._module, training
        self.name = layer.display_name()
        self.example, self.rest = tree.map_structure(lambda x: None, example), rest
        self.given = layer.output_shape_given
        self.names = [list(layer._parameters), list(layer._buffers)]

    def __call__(
        self, parameters: Sequence[Any], buffers: Sequence[Any], tensors: Sequence[Any], seed: Any
    ) -> tuple[Any, list[Any]]:
        inputs = [*parameters, *buffers, *tensors, ops.convert_to_tensor(seed)]
        if self.op is None:
            specs = [Spec(tuple(int(s or 2) for s in t.shape), t.dtype) for t in inputs]
            self.structure = self._run_without_numbers(specs)[0]
            changed = len(buffers) if self.training else 0
            self._make(specs, self._output_count() + changed)
        return self._run(inputs)

    def _apply(self, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return the module's outputs and its buffers afterwards, for tensors of torch."""
        torch = _torch()
        parts, at = [], 0
        for names in self.names:
            parts.append(dict(zip(names, inputs[at : at + len(names)])))
            at += len(names)
        # Modules write running statistics into their buffers, and some into their inputs.
        buffers = {n: b.clone() for n, b in parts[1].items()}
        tensors = iter([x.clone() for x in inputs[at:-1]])
        leaves = [next(tensors) if r is None else r for r in self.rest]
        args, kwargs = tree.pack_sequence_as(self.example, leaves)
        self.module.train(self.training)
        result = torch.func.functional_call(self.module, (parts[0], buffers), args, kwargs)
        return result, list(buffers.values()) if self.training else []

    def _run_without_numbers(self, specs: Sequence[Spec]) -> tuple[Any, list[Any]]:
        torch = _torch()
        if self.given is not None:
            batch = specs[sum(map(len, self.names))].shape[:1]
            shape = (*batch, *self.given[1:])
            changed = [_abstract(s) for s in self._buffers_of(specs)] if self.training else []
            return _abstract(Spec(shape, specs[0].dtype)), changed
        try:
            with _lock, torch.no_grad():
                return self._apply([_abstract(s) for s in specs])
        except (NotImplementedError, RuntimeError) as error:
            if "meta" not in str(error):
                raise
            raise ValueError(
                f"{self.name}: PyTorch cannot run the module without numbers ({error}). Give "
                "output_shape=..., with None for the batch axis."
            ) from error

    def _buffers_of(self, specs: Sequence[Any]) -> Sequence[Any]:
        start = len(self.names[0])
        return specs[start : start + len(self.names[1])]

    def _infer(self, *specs: Spec) -> list[Spec]:
        known = [Spec(tuple(map(int, s.shape)), s.dtype) for s in specs]
        outputs, changed = self._run_without_numbers(known)
        return [
            Spec(tuple(t.shape), str(t.dtype).removeprefix("torch."))
            for t in (*tree.flatten(outputs), *changed)
        ]

    def _forward(self, *arrays: np.ndarray) -> list[np.ndarray]:
        torch = _torch()
        with _lock, torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_seed_of(arrays[-1]))
            outputs, changed = self._apply([to_torch(a) for a in arrays])
        return [to_numpy(t) for t in (*tree.flatten(outputs), *changed)]

    def _differentiable(self, inputs: Sequence[Any]) -> list[int]:
        """Return the places of the inputs of floats but the buffers."""
        start = len(self.names[0])
        stop = start + len(self.names[1])
        return [
            k
            for k, x in enumerate(inputs[:-1])
            if not start <= k < stop and "float" in str(x.dtype)
        ]

    def _backward(self, *arrays: np.ndarray) -> list[np.ndarray]:
        torch = _torch()
        count = self._output_count()
        inputs = [to_torch(a) for a in arrays[count:]]
        leaves = [inputs[k].requires_grad_() for k in self._differentiable(inputs)]
        with _lock, torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(_seed_of(arrays[-1]))
            outputs, _ = self._apply(inputs)
            pairs = [
                (y, to_torch(g)) for y, g in zip(tree.flatten(outputs), arrays) if y.requires_grad
            ]
            ys, gs = zip(*pairs) if pairs else ((), ())
            grads = (
                torch.autograd.grad(ys, leaves, gs, allow_unused=True)
                if ys
                else [None] * len(leaves)
            )
        return [
            np.zeros(tuple(x.shape), _dtype_of(x)) if g is None else to_numpy(g)
            for x, g in zip(leaves, grads)
        ]


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "TorchModuleWrapper runs modules of PyTorch, which is not installed: pip install torch."
        ) from error
    return torch


def _is_numbers(x: Any) -> bool:
    return (
        ops.is_tensor(x) or isinstance(x, (Variable, np.ndarray)) or type(x).__module__ == "torch"
    )


def _abstract(spec: Spec) -> Any:
    """Return a tensor of torch without numbers."""
    torch = _torch()
    return torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")


def _dtype_of(x: Any) -> Any:
    return to_numpy(x[:0] if x.dim() else x.reshape(1)).dtype


def _seed_of(state: np.ndarray) -> int:
    return int(state[0]) << 31 ^ int(state[1])


class _Lent:
    """An array as NumPy describes it to others, without its write lock."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def to_torch(array: np.ndarray) -> Any:
    """Return a tensor of torch that shares an array's memory; the caller does not write to it."""
    torch = _torch()
    if array.dtype.name == "bfloat16":
        return to_torch(array.view(np.int16)).view(torch.bfloat16)
    if not array.flags.c_contiguous or not array.flags.aligned:
        array = np.array(array, order="C")
    if not array.flags.writeable:
        array = np.asarray(_Lent(array))  # torch warns of arrays that it must not write to
    return torch.from_numpy(array)


def to_numpy(tensor: Any) -> np.ndarray:
    """Return an array with a tensor's numbers, of ml_dtypes's type for bfloat16."""
    torch = _torch()
    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()
