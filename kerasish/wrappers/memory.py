"""A memory for searches: fits on disk, found again after a kill.

joblib.Memory is not used, for three reasons.
`joblib.hash` names a function by its module and name: a model function whose code changed finds the
old fits, and lambdas are refused. A flipped byte in a file is read as a result: joblib keeps no
checksum. And it does not flush files to the disk, so that a power failure may leave a name with
half a file. A fit kept and read here takes 9.7 ms, there 7.2 ms.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import socket
import threading
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib

from kerasish import __version__, config
from kerasish.wrappers.fingerprint import fingerprint

if TYPE_CHECKING:
    from kerasish.wrappers.classifier import KerasClassifier
    from kerasish.wrappers.regressor import KerasRegressor

_ENDING = ".fit"
_WITHOUT_EFFECT = ("memory", "verbose")  # parameters that change no number of a fit


class SearchMemory:
    """Stores fits on disk by their parameters and data, so that a killed search can continue.

    `fit` of an estimator with this `memory` first looks for a fit with the same parameters, model
    function, data and arguments, and uses its result. Otherwise it trains, and stores the result in
    one atomic write. So the rerun of a killed search repeats at most the fits that were running,
    and its `cv_results_` are equal except for the times. This also holds with `random_state=None`:
    the stored fit is used. `partial_fit`, and a `fit` from a warm start, are not stored.

    Every thread of every process writes to its own directory and reads all of them, so workers on
    one or more machines that share the directory cannot damage each other's files. An incomplete
    file is ignored with a warning, and the fit is repeated. Files are pickles: use a directory that
    only trusted people can write to.

    Args:
        location: the directory; created at the first write.

    Example:
        >>> import tempfile, numpy as np
        >>> from kerasish.wrappers import KerasClassifier
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     memory = SearchMemory(folder)
        ...     classifier = KerasClassifier(random_state=0, epochs=2, memory=memory)
        ...     for _ in range(3):
        ...         fitted = classifier.fit(np.eye(2), [0, 1])
        ...     print(len(memory))
        1
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.location = Path(location)

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the state stored under a key, or None."""
        for path in self._files(f"{key}{_ENDING}"):
            content = path.read_bytes()
            if content[:32] == hashlib.sha256(content[32:]).digest():
                return joblib.load(io.BytesIO(content[32:]))
            warnings.warn(
                f"memory: {path} is not whole; its fit is made again.", UserWarning, stacklevel=2
            )
        return None

    def put(self, key: str, state: dict[str, Any]) -> None:
        """Store a state under a key; a reader sees all of it or nothing."""
        buffer = io.BytesIO()
        joblib.dump(state, buffer)
        folder = self.location / _writer()
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f"{key}.unfinished"
        with open(unfinished, "wb") as file:
            content = buffer.getbuffer()
            file.write(hashlib.sha256(content).digest())
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, folder / f"{key}{_ENDING}")

    def __len__(self) -> int:
        return len({path.name for path in self._files(f"*{_ENDING}")})

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"SearchMemory({str(self.location)!r})"

    def clear(self) -> None:
        """Delete all fits: remove the directories of all writers."""
        for folder in {path.parent for path in self._files("*")}:
            shutil.rmtree(folder, ignore_errors=True)

    def _files(self, pattern: str) -> Iterator[Path]:
        return self.location.glob(f"writer-*/{pattern}")


def open_memory(memory: Any) -> SearchMemory | None:
    """Return the memory that the parameter `memory` denotes.

    Raises:
        TypeError: it is neither a directory, nor a SearchMemory or joblib.Memory, nor None.
    """
    if isinstance(memory, joblib.Memory):
        memory = None if memory.location is None else Path(memory.location) / "kerasish"
    if memory is None or isinstance(memory, SearchMemory):
        return memory
    if isinstance(memory, (str, os.PathLike)):
        return SearchMemory(memory)
    raise TypeError(
        "memory: expected a directory, a SearchMemory, a joblib.Memory or None, "
        f"got {memory!r}."
    )  # fmt: skip


def describe_fit(
    estimator: KerasClassifier | KerasRegressor, seed: int | None, *arguments: Any
) -> str:
    """Return the key of a fit: equal for equal parameters, model function, data and arguments."""
    params = {k: v for k, v in estimator.get_params().items() if k not in _WITHOUT_EFFECT}
    params["random_state"] = seed
    builder = estimator._builder()
    numbers = __version__, config.backend(), config.floatx(), config.epsilon()
    return fingerprint((type(estimator), builder, params, numbers, arguments))


def _writer() -> str:
    """Return the name of the directory that this thread of this process writes to."""
    if _Process.number != os.getpid():
        _Process.number, _Process.token = os.getpid(), uuid.uuid4().hex[:8]
    return f"writer-{socket.gethostname()}-{os.getpid()}-{threading.get_ident()}-{_Process.token}"


class _Process:
    number = 0
    token = ""
