"""Settings of the process: default float, epsilon, image layout, backend, device, random seed."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kerasish.devices import set_device as set_device
from kerasish.devices import set_memory_limit as set_memory_limit
from kerasish.environment import choice, switch
from kerasish.tracebacks import disable_traceback_filtering as disable_traceback_filtering
from kerasish.tracebacks import enable_traceback_filtering as enable_traceback_filtering
from kerasish.tracebacks import is_traceback_filtering_enabled as is_traceback_filtering_enabled

if TYPE_CHECKING:
    from kerasish.dtype_policies import DTypePolicy

DEFAULT_BACKEND = "static"
_LEVELS = ("fast_run", "fast_compile", "none")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


class _Draws:
    """Numbers from 0 on, for any thread; `at` is the next one, and may be set."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self._guard = threading.Lock()

    def take(self) -> int:
        """Return the next number."""
        with self._guard:
            self.at += 1
            return self.at - 1

    def __getstate__(self) -> int:
        return self.at

    def __setstate__(self, at: int) -> None:
        _Draws.__init__(self, at)


class _Settings:
    floatx = choice("KERASISH_FLOATX", _FLOATS, "float32")
    epsilon = 1e-7
    image_data_format = "channels_last"
    backend = os.environ.get("KERASISH_BACKEND", "")
    optimize = choice("KERASISH_OPTIMIZE", _LEVELS, "fast_run")
    tf32 = switch("KERASISH_TF32")
    flash_attention: bool | None = None
    interactive_logging = True
    max_epochs: int | None = None
    max_steps_per_epoch: int | None = None
    seed: int | None = None
    explain = False
    threads: int | None = None
    draws = _Draws()
    seeded: list[Callable[[], None]] = []
    read_policy: Callable[[], Any]
    write_policy: Callable[[Any], None]


def floatx() -> str:
    """Return the default float dtype, "float32" unless set otherwise."""
    return _Settings.floatx


def set_floatx(value: str) -> None:
    """Set the default float dtype: "float16", "bfloat16", "float32" or "float64".

    Args:
        value: name of a float dtype.
    """
    if value not in _FLOATS:
        raise ValueError(f"set_floatx: expected one of {_FLOATS}, got {value!r}.")
    _Settings.floatx = str(value)


def epsilon() -> float:
    """Return the small number that keeps divisions and logarithms finite (1e-7 at the start)."""
    return _Settings.epsilon


def set_epsilon(value: float) -> None:
    """Set the number that `epsilon()` returns; it must be positive.

    Args:
        value: a number > 0.
    """
    if not value > 0:
        raise ValueError(f"set_epsilon: expected a positive number, got {value!r}.")
    _Settings.epsilon = float(value)


def image_data_format() -> str:
    """Return "channels_last" (n, h, w, c) or "channels_first" (n, c, h, w)."""
    return _Settings.image_data_format


def set_image_data_format(data_format: str) -> None:
    """Set where the channels of images stand.

    Args:
        data_format: "channels_last" or "channels_first".
    """
    _Settings.image_data_format = standardize_data_format(data_format)


def standardize_data_format(data_format: str | None) -> str:
    """Return `data_format`, or the process's default for None."""
    if data_format is None:
        return _Settings.image_data_format
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(
            f"data_format must be 'channels_last' or 'channels_first', got {data_format!r}."
        )
    return str(data_format)


def backend() -> str:
    """Return the name of the backend that runs models: "eager", "static", or a package's own."""
    return _Settings.backend or DEFAULT_BACKEND


def set_backend(backend: str) -> None:
    """Choose the backend that runs models from their next step on.

    The name is looked up when a step is needed, so that a backend may be registered after this.

    Args:
        backend: "eager", "static", a name registered with `kerasish.backends`, or one from an
            installed package's entry-point group `kerasish.backends`.
    """
    if not isinstance(backend, str) or not backend:
        raise ValueError(f"set_backend: expected the name of a backend, got {backend!r}.")
    _Settings.backend = backend


def keep_dtype_policy(read: Callable[[], Any], write: Callable[[Any], None]) -> None:
    """Let `dtype_policy` and `set_dtype_policy` call the module that knows dtype policies."""
    _Settings.read_policy = staticmethod(read)
    _Settings.write_policy = staticmethod(write)


def dtype_policy() -> DTypePolicy:
    """Return the dtype policy that new layers take."""
    return _Settings.read_policy()


def set_dtype_policy(policy: DTypePolicy | str) -> None:
    """Set the dtype policy that new layers take: a name ("mixed_bfloat16") or a policy.

    Args:
        policy: a policy or its name.
    """
    _Settings.write_policy(policy)


def enable_flash_attention() -> None:
    """Let attention layers use a fused kernel where the backend has one."""
    _Settings.flash_attention = True


def disable_flash_attention() -> None:
    """Keep attention layers from using a fused kernel."""
    _Settings.flash_attention = False


def is_flash_attention_enabled() -> bool | None:
    """Return what was chosen for fused attention kernels; None: the backend decides.

    Example:
        >>> is_flash_attention_enabled()
    """
    return _Settings.flash_attention


def set_tf32(enabled: bool) -> None:
    """Let GPUs round float32 factors of products and convolutions to TF32, or not (the start).

    TF32 keeps float32's range and 10 bits behind the point (about 3 digits); sums stay float32.
    Matrix units then multiply float32 several times faster. The CPU's engines never do it.
    KERASISH_TF32=1 sets it from outside.

    Args:
        enabled: whether to turn it on.

    Example:
        >>> set_tf32(True)
        >>> tf32()
        True
        >>> set_tf32(False)
    """
    if not isinstance(enabled, bool):
        raise ValueError(f"set_tf32: expected True or False, got {enabled!r}.")
    _Settings.tf32 = enabled


def tf32() -> bool:
    """Return whether GPUs may round float32 factors to TF32: see `set_tf32`."""
    return _Settings.tf32


def is_nnx_enabled() -> bool:
    """Return False: kerasish does not build on JAX's NNX."""
    return False


def enable_unsafe_deserialization() -> None:
    """Accepted for compatibility with Keras: kerasish runs no code from files in any mode."""


def is_interactive_logging_enabled() -> bool:
    """Return whether progress is drawn as a bar (True) or left out of the output."""
    return _Settings.interactive_logging


def enable_interactive_logging() -> None:
    """Draw progress bars on terminals."""
    _Settings.interactive_logging = True


def disable_interactive_logging() -> None:
    """Draw no progress bars: one line per epoch."""
    _Settings.interactive_logging = False


def max_epochs() -> int | None:
    """Return the cap on `fit`'s epochs, or None."""
    return _Settings.max_epochs


def set_max_epochs(max_epochs: int | None) -> None:
    """Cap the epochs of every `fit` (None: no cap).

    Args:
        max_epochs: a number >= 1, or None.

    Example:
        >>> set_max_epochs(3)
        >>> max_epochs()
        3
        >>> set_max_epochs(None)
    """
    _Settings.max_epochs = max_epochs


def max_steps_per_epoch() -> int | None:
    """Return the cap on the steps of an epoch, or None.

    Example:
        >>> max_steps_per_epoch() is None
        True
    """
    return _Settings.max_steps_per_epoch


def set_max_steps_per_epoch(max_steps_per_epoch: int | None) -> None:
    """Cap the steps of every epoch (None: no cap).

    Args:
        max_steps_per_epoch: a number >= 1, or None.

    Example:
        >>> set_max_steps_per_epoch(10)
        >>> max_steps_per_epoch()
        10
        >>> set_max_steps_per_epoch(None)
    """
    _Settings.max_steps_per_epoch = max_steps_per_epoch


def set_threads(threads: int | None) -> None:
    """Let the CPU engine use `threads` threads, 1 or more (None: as many as there are).

    Args:
        threads: a number >= 1, or None.

    Example:
        >>> set_threads(1)
        >>> threads()
        1
        >>> set_threads(None)
    """
    if threads is not None and (
        isinstance(threads, bool) or int(threads) != threads or threads < 1
    ):
        raise ValueError(f"set_threads: expected None or an integer of 1 or more, got {threads!r}.")
    _Settings.threads = None if threads is None else int(threads)


def threads() -> int | None:
    """Return the number of `using_threads` or `set_threads`; None: it is left to the machine.

    Example:
        >>> set_threads(2)
        >>> threads()
        2
        >>> set_threads(None)
    """
    return _threads_here.get() or _Settings.threads


_threads_here: contextvars.ContextVar[int | None] = contextvars.ContextVar("threads", default=None)


@contextlib.contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Let the CPU engine use `threads` threads in this block and this thread (None: as before).

    Args:
        threads: a number >= 1, or None.

    Example:
        >>> with using_threads(1):
        ...     print(threads())
        1
    """
    token = _threads_here.set(threads or _threads_here.get())
    try:
        yield
    finally:
        _threads_here.reset(token)


def set_optimize(level: str) -> None:
    """Set how the static engine compiles steps from now on.

    Args:
        level: "fast_run" (every pass, fused loops), "fast_compile" (the cheap passes alone, for
            steps that run a few times) or "none" (the graph as it was traced). KERASISH_OPTIMIZE
            sets it from outside.

    Example:
        >>> set_optimize("fast_compile")
        >>> optimize()
        'fast_compile'
        >>> set_optimize("fast_run")
    """
    if level not in _LEVELS:
        raise ValueError(f"set_optimize: expected one of {_LEVELS}, got {level!r}.")
    _Settings.optimize = level


def optimize() -> str:
    """Return the level of `set_optimize`, "fast_run" unless set otherwise.

    Example:
        >>> optimize()
        'fast_run'
    """
    return _Settings.optimize


def explain_compiles(enabled: bool = True) -> None:
    """Print a line for each compilation: what is compiled, and why it was not compiled already.

    Args:
        enabled: whether to turn it on.

    Example:
        >>> explain_compiles()
        >>> is_explaining_compiles()
        True
        >>> explain_compiles(False)
    """
    _Settings.explain = bool(enabled)


def is_explaining_compiles() -> bool:
    """Return whether compilations are explained (KERASISH_DEBUG=1 does it, too).

    Example:
        >>> is_explaining_compiles()
        False
    """
    return _Settings.explain or is_debugging()


def is_debugging() -> bool:
    """Return whether KERASISH_DEBUG asks for graphs, passes and plans to be printed."""
    return switch("KERASISH_DEBUG")


def set_seed(seed: int | None) -> None:
    """Make the seeds that `next_seed` hands out a function of `seed` and their order."""
    _Settings.seed = seed
    _Settings.draws = _Draws()
    for restart in _Settings.seeded:
        restart()


def when_seeded(restart: Callable[[], None]) -> None:
    """Let `set_seed` call `restart`, for code that keeps a random state of the process."""
    _Settings.seeded.append(restart)


def seed() -> int | None:
    """Return the seed of `set_seed`, or None."""
    return _Settings.seed


class SeedStream:
    """The seeds of one `seeded` block: a function of its seed and of their order."""

    def __init__(self, seed: int) -> None:
        self.seed = int(seed)
        self.draws = _Draws()
        self.kept: dict[str, Any] = {}  # random states that live as long as the block

    def next_seed(self) -> int:
        """Return the next seed in [0, 2**31)."""
        return _mix(self.seed, self.draws.take())


_stream: contextvars.ContextVar[SeedStream | None] = contextvars.ContextVar("stream", default=None)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[SeedStream]:
    """Let this thread draw its seeds from `seed`, and the process's own sequence rest meanwhile.

    Example:
        >>> with seeded(3):
        ...     first = next_seed()
        >>> with seeded(3):
        ...     print(next_seed() == first)
        True
    """
    stream = SeedStream(seed)
    token = _stream.set(stream)
    try:
        yield stream
    finally:
        _stream.reset(token)


def seed_stream() -> SeedStream | None:
    """Return the stream of the `seeded` block that is running in this thread, or None."""
    return _stream.get()


def next_seed() -> int:
    """Return a seed in [0, 2**31) for code that was given none.

    With `set_seed(s)` the n-th call is a fixed function of s and n; else it comes from the system.
    Inside `seeded(s)` it is a fixed function of s and of the calls made in the block.
    """
    stream = _stream.get()
    if stream is not None:
        return stream.next_seed()
    if _Settings.seed is None:
        return int.from_bytes(os.urandom(4), "little") >> 1
    return _mix(_Settings.seed, _Settings.draws.take())


def random_state() -> list[int | None]:
    """Return [seed, seeds handed out so far] of this thread's `seeded` block, or the process."""
    stream = _stream.get()
    if stream is not None:
        return [stream.seed, stream.draws.at]
    return [_Settings.seed, _Settings.draws.at]


def set_random_state(state: Sequence[int | None]) -> None:
    """Let `next_seed` go on where `random_state` found it."""
    seed, draws = state
    stream = _stream.get()
    if stream is None:
        _Settings.seed, _Settings.draws = seed, _Draws(draws or 0)
    elif seed is not None:
        stream.seed, stream.draws = seed, _Draws(draws or 0)


def _mix(seed: int, draw: int) -> int:
    """Return 31 bits that are a function of `seed` and `draw`."""
    mixed = (seed + 1) * 0x9E3779B97F4A7C15 + draw * 0xBF58476D1CE4E5B9
    mixed &= 0xFFFFFFFFFFFFFFFF
    mixed ^= mixed >> 31
    mixed = mixed * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return mixed >> 33
