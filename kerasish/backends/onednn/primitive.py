"""Primitive: one oneDNN computation, created once. Binding: a primitive with its addresses.

    primitive.arguments      {name: Layout}; each buffer must be of that layout
    primitive.required       those whose layout the primitive chose: a reorder to or from the plain
                             one is needed where `layout != plain`
    primitive.scratchpad_bytes, primitive.workspace (Layout or None)
    primitive.bind({name: Buffer or array})  -> Binding
    binding.block            int64[5] {execute, primitive, stream, count, args}, for the driver:
                             Record(runtime.call_dnnl, binding.block, primitive.name)
    binding.rebind(name, buffer)   another address for one argument: no allocation, 1 us
    binding.execute()        runs it from Python

oneDNN divides work by OpenMP's number of threads, at a primitive's creation and at its execution;
both must be equal. `make` sets the number at the creation. Before a record whose `threads` differ
from those of the previous record, a program has Record(runtime.call_threads, threads_block(n)),
which takes 5 ns, and at its end a record that restores the first number.

Bindings keep only arrays that are bound as such alive; the caller keeps other buffers alive.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kerasish.backends.onednn import library as lib
from kerasish.backends.onednn import native
from kerasish.backends.onednn.layout import Ints, Layout, contiguous_strides, strided
from kerasish.typing import Array

PostOps = Sequence[Sequence[Any]]
Arguments = Mapping[str, tuple[int, Layout]]  # name -> (oneDNN's number, layout)


class Buffer(NamedTuple):
    """Memory of the caller: its address and its size in bytes."""

    address: int
    nbytes: int


class ExecuteArgument(ctypes.Structure):
    """oneDNN's dnnl_exec_arg_t: which argument, and its memory object."""

    _fields_ = [("argument", ctypes.c_int32), ("memory", ctypes.c_void_p)]


class ExecuteArguments(ctypes.Structure):
    """The words of a driver's block: dnnl_primitive_execute and its four arguments."""

    _fields_ = [
        ("execute", ctypes.c_void_p),  # word 0: the address of dnnl_primitive_execute
        ("primitive", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("args", ctypes.c_void_p),  # ExecuteArgument[count]
    ]


def threads_block(threads: int) -> Array:
    """Return int64[2] {omp_set_num_threads, threads}, a block for a call `void f(int)`.

    Empty if oneDNN has no OpenMP; it is not needed then.
    """
    function = native.symbol("omp_set_num_threads")
    return np.array([function, threads] if function else [], np.int64)


# ---------------------------------------------------------------------------------------- post-ops


# Post-ops whose first parameter defaults to 1; that of the others is 0 or ignored.
_ALPHA_ONE = ("linear", "swish", "pow", "elu", "soft_relu")


def post_operations(post: PostOps, shape: Ints, order: Ints, where: str) -> tuple[Any, ...]:
    """Return `post` checked and in a hashable form.

    Args:
        post: ("relu", alpha), ("clip", low, high), ("sum", scale), ("add", shape, dtype), ...
        shape: of the output, as the user sees it; operands of "add" and its kind broadcast to it.
        order: for each axis of oneDNN's, the user's axis.
        where: the object being created, for error messages.
    """
    done: list[tuple[Any, ...]] = []
    for one in post:
        name, *rest = (one,) if isinstance(one, str) else tuple(one)
        if name in lib.ELTWISE:
            default = (1.0, 0.0) if name in _ALPHA_ONE else (0.0, 0.0)
            alpha, beta = (*(float(value) for value in rest), *default[len(rest) :])
            done.append(("eltwise", name, alpha, beta))
        elif name == "sum":
            done.append(("sum", float(rest[0]) if rest else 1.0))
        elif name in lib.BINARY:
            dtype = rest[1] if len(rest) > 1 else "float32"
            done.append(("binary", name, *_operand(name, rest, shape, order, where), dtype))
        else:
            known = sorted([*lib.ELTWISE, *lib.BINARY, "sum"])
            raise ValueError(f"{where}: unknown post-op {name!r}; known: {known}.")
    return tuple(done)


def _operand(name: str, rest: list[Any], shape: Ints, order: Ints, where: str) -> tuple[Ints, Ints]:
    if not rest:
        raise ValueError(f"{where}: post-op {name!r} needs the shape of its operand.")
    given = tuple(int(size) for size in rest[0])
    full = (1,) * (len(shape) - len(given)) + given
    if len(full) != len(shape) or any(f not in (1, s) for f, s in zip(full, shape, strict=True)):
        raise ValueError(f"{where}: post-op {name!r} of {given} does not broadcast to {shape}.")
    steps = contiguous_strides(full)
    return tuple(full[axis] for axis in order), tuple(steps[axis] for axis in order)


def _described(describe: Callable[[int], int], post: tuple[Any, ...], about: str) -> int:
    """Return what `describe` creates of a new attribute object, with user scratchpads."""
    attributes = lib.create("primitive_attr_create", about=about)
    operations = 0
    try:
        lib.call("primitive_attr_set_scratchpad_mode", attributes, 1, about=about)
        if post:
            operations = lib.create("post_ops_create", about=about)
            _append(operations, post, about)
            lib.call("primitive_attr_set_post_ops", attributes, operations, about=about)
        return describe(attributes)
    finally:
        lib.destroy("post_ops_destroy", operations, os.getpid())
        lib.destroy("primitive_attr_destroy", attributes, os.getpid())


def _append(operations: int, post: tuple[Any, ...], about: str) -> None:
    for kind, *rest in post:
        if kind == "eltwise":
            name, alpha, beta = rest
            code = lib.ELTWISE[name]
            lib.call("post_ops_append_eltwise", operations, code, alpha, beta, about=about)
        elif kind == "sum":
            lib.call("post_ops_append_sum", operations, rest[0], 0, 0, about=about)
        else:
            name, dims, strides, dtype = rest
            layout = strided(dims, strides, dtype)
            code = lib.BINARY[name]
            lib.call("post_ops_append_binary", operations, code, layout.handle, about=about)


# --------------------------------------------------------------------------------------- primitive


class Primitive:
    """A oneDNN primitive; created by `make`, and shared by all callers with the same key.

    Attributes:
        name: the computation and its shapes, for error messages.
        arguments: name -> Layout of every argument that `bind` needs (the scratchpad included).
        required: name -> Layout of the arguments whose layout the primitive chose.
        scratchpad_bytes: size of the argument "scratchpad", best aligned to 64 bytes; 0: none.
        workspace: Layout of the argument "workspace", written forward and read backward, or None.
        implementation: oneDNN's name of the kernel.
        threads: the number of threads that it was created for.
        flops: multiplications and additions of one execution (0: not counted).
    """

    def __init__(
        self, name: str, descriptor: int, arguments: Arguments, threads: int, flops: float
    ) -> None:
        self.name, self.threads, self.flops = name, threads, flops
        self.descriptor = descriptor
        lib.free_with(self, "primitive_desc_destroy", descriptor)
        self.implementation = _implementation(descriptor)
        self._codes: dict[str, int] = {}
        self.arguments: dict[str, Layout] = {}
        self.required: dict[str, Layout] = {}
        self._collect(arguments)
        self.handle = lib.create("primitive_create", descriptor, about=name)
        lib.free_with(self, "primitive_destroy", self.handle)

    def _collect(self, arguments: Arguments) -> None:
        for name, (code, wished) in arguments.items():
            layout = wished
            if not wished.nbytes:
                layout = self.required[name] = _chosen(self.descriptor, code, self.name)
            self.arguments[name], self._codes[name] = layout, code
        self.workspace = _optional(self.descriptor, lib.QUERY_WORKSPACE)
        scratchpad = _optional(self.descriptor, lib.QUERY_SCRATCHPAD)
        self.scratchpad_bytes = scratchpad.nbytes if scratchpad else 0
        if self.workspace:
            self.arguments["workspace"], self._codes["workspace"] = (
                self.workspace,
                lib.ARG_WORKSPACE,
            )
        if scratchpad:
            self.arguments["scratchpad"] = scratchpad
            self._codes["scratchpad"] = lib.ARG_SCRATCHPAD

    @property
    def is_reference(self) -> bool:
        """Whether oneDNN only has its reference loops here: 100 times slower than a kernel."""
        return self.implementation.startswith(("ref", "simple:any"))

    def bind(self, buffers: Mapping[str, Any]) -> Binding:
        """Return this primitive with these buffers.

        Args:
            buffers: for every name in `arguments` a Buffer (or (address, bytes)), or a NumPy array.

        Raises:
            ValueError: a name is missing or unknown, an address is null, a buffer is too small.
        """
        return Binding(self, buffers)

    def scratch(self) -> dict[str, Any]:
        """Return new memory for the scratchpad and the workspace, for `bind`.

        Whether a primitive has them depends on the processor; {} if it has neither.
        """
        names = [name for name in ("scratchpad", "workspace") if name in self.arguments]
        return {name: np.zeros(self.arguments[name].nbytes, np.uint8) for name in names}

    def __repr__(self) -> str:
        return f"Primitive({self.name}, {self.implementation}, threads={self.threads})"


def _implementation(descriptor: int) -> str:
    result = ctypes.c_char_p()
    lib.call("primitive_desc_query", descriptor, lib.QUERY_IMPLEMENTATION, 0, ctypes.byref(result))
    return (result.value or b"").decode()


def _optional(descriptor: int, what: int, index: int = 0) -> Layout | None:
    function = native.library().dnnl_primitive_desc_query_md
    function.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    function.restype = ctypes.c_void_p
    result = function(descriptor, what, index)
    if not result:
        return None
    layout = Layout(lib.create("memory_desc_clone", result))
    return layout if layout.nbytes else None


def _chosen(descriptor: int, code: int, about: str) -> Layout:
    layout = _optional(descriptor, lib.QUERY_ARGUMENT, code)
    if layout is None:
        raise lib.OneDnnError(f"oneDNN: {about}: no layout was chosen for argument {code}.")
    return layout


# ----------------------------------------------------------------------------------------- binding


def _buffer(value: Any, name: str, where: str) -> tuple[Buffer, Any]:
    """Return the memory that `value` denotes, and the object that must be kept alive for it."""
    if isinstance(value, tuple) and len(value) == 2:
        return Buffer(int(value[0]), int(value[1])), None
    interface = getattr(value, "__array_interface__", None)
    if interface is None:
        raise ValueError(
            f"{where}: argument {name!r} must be a Buffer(address, nbytes) or a NumPy array, "
            f"got {type(value).__name__}."
        )
    itemsize = value.dtype.itemsize
    if any(step < 0 for step in value.strides):
        raise ValueError(f"{where}: argument {name!r} has negative strides {value.strides}.")
    span = itemsize + sum(
        (size - 1) * step for size, step in zip(value.shape, value.strides, strict=True)
    )
    return Buffer(int(interface["data"][0]), span if value.size else 0), value


class Binding:
    """A primitive with the addresses of its arguments.

    Attributes:
        primitive: kept alive.
        block: the words of `arguments` as an int64 array, for a driver's record.
        arguments: the ExecuteArguments.
        threads: the number of OpenMP threads that it must run with.
    """

    def __init__(self, primitive: Primitive, buffers: Mapping[str, Any]) -> None:
        self.primitive = primitive
        self.threads = primitive.threads
        self._check_names(buffers)
        names = list(primitive.arguments)
        checked = {name: self._checked(name, buffers[name]) for name in names}
        self._kept = {name: owner for name, (_, owner) in checked.items()}
        self._memories: dict[str, int] = {}
        for name in names:
            layout, address = primitive.arguments[name], checked[name][0].address
            memory = lib.create(
                "memory_create", layout.handle, lib.engine(), address, about=primitive.name
            )
            lib.free_with(self, "memory_destroy", memory)
            self._memories[name] = memory
        self._args = (ExecuteArgument * len(names))(
            *[ExecuteArgument(primitive._codes[name], self._memories[name]) for name in names]
        )
        self.arguments = ExecuteArguments(
            lib.execute_address(),
            primitive.handle,
            lib.stream(),
            len(names),
            ctypes.addressof(self._args),
        )
        self.block = np.frombuffer(self.arguments, np.int64)
        a = self.arguments
        self._execute = lib.function_of("primitive_execute")
        self._call = (a.primitive, a.stream, a.count, a.args)
        self._addresses: Sequence[int] = ()  # those of the last `run_at`

    def _check_names(self, buffers: Mapping[str, Any]) -> None:
        known = set(self.primitive.arguments)
        missing, unknown = sorted(known - set(buffers)), sorted(set(buffers) - known)
        if missing or unknown:
            raise ValueError(
                f"{self.primitive.name}: expected buffers {sorted(known)}; "
                f"missing {missing}, unknown {unknown}."
            )

    def _checked(self, name: str, value: Any) -> tuple[Buffer, Any]:
        buffer, owner = _buffer(value, name, self.primitive.name)
        layout = self.primitive.arguments[name]
        if buffer.address <= 0:
            raise ValueError(f"{self.primitive.name}: argument {name!r} has no address.")
        if buffer.nbytes < layout.nbytes:
            raise ValueError(
                f"{self.primitive.name}: argument {name!r} needs {layout.nbytes} bytes "
                f"({layout}), got {buffer.nbytes}."
            )
        return buffer, owner

    def rebind(self, name: str, value: Any) -> None:
        """Use other memory for one argument; checked as in `bind`."""
        if name not in self._memories:
            raise ValueError(
                f"{self.primitive.name}: no argument {name!r}, only {sorted(self._memories)}."
            )
        buffer, owner = self._checked(name, value)
        lib.call(
            "memory_set_data_handle",
            self._memories[name],
            buffer.address,
            about=self.primitive.name,
        )
        self._kept[name] = owner
        self._addresses = ()

    def execute(self) -> None:
        """Run it once, from Python, with its number of threads.

        Raises:
            OneDnnError: oneDNN failed, or this process is a fork of the one that created it for
                several threads (which would wait forever).
        """
        self.check_process()
        if native.openmp_threads() == self.threads:
            status = self._execute(*self._call)
        else:
            with native.use_threads(self.threads):
                status = self._execute(*self._call)
        if status:
            lib.check(status, "primitive_execute", self.primitive.name)

    def run_at(self, addresses: Sequence[int]) -> None:
        """Run it once on memory at these addresses: for callers that know its sizes.

        Args:
            addresses: one for each of `primitive.arguments`, in their order. Nothing is checked.
        """
        if addresses != self._addresses:
            put = lib.function_of("memory_set_data_handle")
            for memory, address in zip(self._memories.values(), addresses):
                status = put(memory, address)
                if status:
                    lib.check(status, "memory_set_data_handle", self.primitive.name)
            self._addresses = addresses
        self.execute()

    def check_process(self) -> None:
        """Raise OneDnnError if running this in a forked child would wait forever."""
        if self.threads > 1 and native.forked():
            raise lib.OneDnnError(
                f"{self.primitive.name}: created for {self.threads} threads before a fork; "
                "OpenMP's threads do not exist in the child. Compile the model again there (it "
                "then uses one thread), or start processes by 'spawn' or 'forkserver'."
            )


# ------------------------------------------------------------------------------------------- cache

_KEPT = 1024
_lock = native.fork_safe_lock(globals(), "_lock")
_recent: OrderedDict[tuple[Any, ...], Primitive] = OrderedDict()
_alive: weakref.WeakValueDictionary[tuple[Any, ...], Primitive] = weakref.WeakValueDictionary()


def make(
    key: tuple[Any, ...],
    about: str,
    threads: int,
    arguments: Arguments,
    describe: Callable[[int], int],
    operations: tuple[Any, ...] = (),
    flops: float = 0.0,
) -> Primitive:
    """Return the primitive with this key, created if there is none yet.

    Primitives in use are always reused, and the last 1024 requested ones are kept.

    Args:
        key: what differs between primitives, except for `arguments` and `operations`.
        about: the name of the primitive.
        threads: the number that it is created for.
        arguments: the arguments that `bind` needs, without memory that oneDNN asks for.
        describe: returns a new descriptor for an attribute object.
        operations: the result of `post_operations`.
        flops: see `Primitive`.
    """
    layouts = tuple((name, layout.key) for name, (_, layout) in arguments.items())
    full = (*key, layouts, operations, threads, os.getpid())
    with _lock:
        result = _alive.get(full)
        if result is None:
            with native.use_threads(threads):
                descriptor = _described(describe, operations, about)
                result = Primitive(about, descriptor, arguments, threads, flops)
            _alive[full] = result
        _recent[full] = result
        _recent.move_to_end(full)
        if len(_recent) > _KEPT:
            _recent.popitem(last=False)
        return result


def clear_cache() -> None:
    """Release the primitives that are not in use."""
    with _lock:
        _recent.clear()


def choose_threads(threads: int | None, work: float, grain: float) -> int:
    """Return `threads` if given and allowed, else the number for `work`."""
    if threads is None:
        return native.threads_for(work, grain)
    if isinstance(threads, bool) or threads != int(threads) or threads < 1:
        raise ValueError(f"threads must be None or an integer of 1 or more, got {threads!r}.")
    return min(int(threads), native.get_threads())
