"""Settings of the process: default float, epsilon, image layout, backend, device, random seed."""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kerasish.changes import note_change
from kerasish.devices import set_device as set_device
from kerasish.devices import set_memory_limit as set_memory_limit
from kerasish.environment import choice, switch
from kerasish.seeds import SeedStream as SeedStream
from kerasish.seeds import next_seed as next_seed
from kerasish.seeds import random_state as random_state
from kerasish.seeds import seed as seed
from kerasish.seeds import seed_stream as seed_stream
from kerasish.seeds import seeded as seeded
from kerasish.seeds import set_random_state as set_random_state
from kerasish.seeds import set_seed as set_seed
from kerasish.seeds import when_seeded as when_seeded
from kerasish.tracebacks import disable_traceback_filtering as disable_traceback_filtering
from kerasish.tracebacks import enable_traceback_filtering as enable_traceback_filtering
from kerasish.tracebacks import hides_frames
from kerasish.tracebacks import is_traceback_filtering_enabled as is_traceback_filtering_enabled

if TYPE_CHECKING:
    from kerasish.dtype_policies import DTypePolicy

DEFAULT_BACKEND = "static"
_LEVELS = ("fast_run", "fast_compile", "none")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


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
    explain = False
    threads: int | None = None
    read_policy: Callable[[], Any]
    write_policy: Callable[[Any], None]


def floatx() -> str:
    """Return the default float dtype, "float32" unless set otherwise.

    Example:
        >>> floatx()
        'float32'
    """
    return _Settings.floatx


def set_floatx(value: str) -> None:
    """Set the default float dtype: "float16", "bfloat16", "float32" or "float64".

    Args:
        value: name of a float dtype.

    Example:
        >>> set_floatx("float64")
        >>> floatx()
        'float64'
        >>> set_floatx("float32")
    """
    if value not in _FLOATS:
        raise ValueError(f"set_floatx: expected one of {_FLOATS}, got {value!r}.")
    _Settings.floatx = str(value)


def epsilon() -> float:
    """Return the small number that keeps divisions and logarithms finite (1e-7 at the start).

    Example:
        >>> epsilon()
        1e-07
    """
    return _Settings.epsilon


def set_epsilon(value: float) -> None:
    """Set the number that `epsilon()` returns; it must be positive.

    Args:
        value: a number > 0.

    Example:
        >>> set_epsilon(1e-6)
        >>> epsilon()
        1e-06
        >>> set_epsilon(1e-7)
    """
    if not value > 0:
        raise ValueError(f"set_epsilon: expected a positive number, got {value!r}.")
    _Settings.epsilon = float(value)


def image_data_format() -> str:
    """Return "channels_last" (n, h, w, c) or "channels_first" (n, c, h, w).

    Example:
        >>> image_data_format()
        'channels_last'
    """
    return _Settings.image_data_format


def set_image_data_format(data_format: str) -> None:
    """Set the place of the channels of images.

    Args:
        data_format: "channels_last" or "channels_first".

    Example:
        >>> set_image_data_format("channels_first")
        >>> image_data_format()
        'channels_first'
        >>> set_image_data_format("channels_last")
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
    """Return the name of the backend that runs models: "eager", "static", or that of a package.

    Example:
        >>> import kerasish
        >>> kerasish.config.backend() in ("static", "eager")
        True
    """
    return _Settings.backend or DEFAULT_BACKEND


def set_backend(backend: str) -> None:
    """Choose the backend that runs models from their next step on.

    The name is looked up when a step is needed, so that a backend may be registered after this.

    Args:
        backend: "eager", "static", a name registered with `kerasish.backends`, or one from an
            installed package's entry-point group `kerasish.backends`.

    Example:
        >>> import kerasish
        >>> name = kerasish.config.backend()
        >>> kerasish.config.set_backend("eager")
        >>> kerasish.config.backend()
        'eager'
        >>> kerasish.config.set_backend(name)
    """
    if not isinstance(backend, str) or not backend:
        raise ValueError(f"set_backend: expected the name of a backend, got {backend!r}.")
    _Settings.backend = backend
    note_change()


def keep_dtype_policy(read: Callable[[], Any], write: Callable[[Any], None]) -> None:
    """Let `dtype_policy` and `set_dtype_policy` call the module of dtype policies."""
    _Settings.read_policy = staticmethod(read)
    _Settings.write_policy = staticmethod(write)


def dtype_policy() -> DTypePolicy:
    """Return the dtype policy that new layers take.

    Example:
        >>> dtype_policy().compute_dtype
        'float32'
    """
    return _Settings.read_policy()


@hides_frames
def set_dtype_policy(policy: DTypePolicy | str) -> None:
    """Set the dtype policy that new layers take: a name ("mixed_bfloat16") or a policy.

    Args:
        policy: a policy or its name.

    Example:
        >>> set_dtype_policy("mixed_bfloat16")
        >>> dtype_policy().compute_dtype, dtype_policy().variable_dtype
        ('bfloat16', 'float32')
        >>> set_dtype_policy("float32")
    """
    _Settings.write_policy(policy)


def enable_flash_attention() -> None:
    """Let attention layers use a fused kernel where the backend has one.

    Example:
        >>> enable_flash_attention()
        >>> is_flash_attention_enabled()
        True
    """
    _Settings.flash_attention = True


def disable_flash_attention() -> None:
    """Keep attention layers from using a fused kernel.

    Example:
        >>> disable_flash_attention()
        >>> is_flash_attention_enabled()
        False
        >>> enable_flash_attention()
    """
    _Settings.flash_attention = False


def is_flash_attention_enabled() -> bool | None:
    """Return what was chosen for fused attention kernels; None: the backend decides.

    Example:
        >>> enable_flash_attention()
        >>> is_flash_attention_enabled()
        True
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
    """Return whether GPUs may round float32 factors to TF32: see `set_tf32`.

    Example:
        >>> import kerasish
        >>> kerasish.config.tf32()
        False
    """
    return _Settings.tf32


def is_nnx_enabled() -> bool:
    """Return False: kerasish does not build on JAX's NNX.

    Example:
        >>> is_nnx_enabled()
        False
    """
    return False


def enable_unsafe_deserialization() -> None:
    """Accepted for compatibility with Keras: kerasish runs no code from files in any mode.

    Example:
        >>> enable_unsafe_deserialization()  # changes nothing
    """


def is_interactive_logging_enabled() -> bool:
    """Return whether progress is drawn as a bar (True) or left out of the output.

    Example:
        >>> is_interactive_logging_enabled()
        True
    """
    return _Settings.interactive_logging


def enable_interactive_logging() -> None:
    """Draw progress bars on terminals.

    Example:
        >>> enable_interactive_logging()
        >>> is_interactive_logging_enabled()
        True
    """
    _Settings.interactive_logging = True


def disable_interactive_logging() -> None:
    """Draw no progress bars: one line per epoch.

    Example:
        >>> disable_interactive_logging()
        >>> is_interactive_logging_enabled()
        False
        >>> enable_interactive_logging()
    """
    _Settings.interactive_logging = False


def max_epochs() -> int | None:
    """Return the cap on `fit`'s epochs, or None.

    Example:
        >>> set_max_epochs(3)
        >>> max_epochs()
        3
        >>> set_max_epochs(None)
    """
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
    """Let the CPU engine use `threads` threads, 1 or more (None: all that there are).

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
    note_change()


def threads() -> int | None:
    """Return the number of `using_threads` or `set_threads`; None: it is left to the machine.

    Example:
        >>> set_threads(2)
        >>> threads()
        2
        >>> set_threads(None)
    """
    return threads_here.get() or _Settings.threads


threads_here: contextvars.ContextVar[int | None] = contextvars.ContextVar("threads", default=None)


@contextlib.contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Let the CPU engine use `threads` threads in this block and this thread (None: as before).

    Args:
        threads: a number >= 1, or None.

    Returns:
        A context manager, of the value None.

    Example:
        >>> with using_threads(1):
        ...     print(threads())
        1
    """
    token = threads_here.set(threads or threads_here.get())
    try:
        yield
    finally:
        threads_here.reset(token)


def set_optimize(level: str) -> None:
    """Set how the static engine compiles steps from now on.

    Args:
        level: "fast_run" (every pass, fused loops), "fast_compile" (only the cheap passes, for
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
