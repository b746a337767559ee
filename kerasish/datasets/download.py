"""Files from the web into the cache: checked, complete or not there at all, unpacked safely."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

from kerasish import config
from kerasish.datasets.extract import extract_archive

_CHUNK = 1 << 20
_SECONDS = 30  # without a byte, then the server counts as unreachable
_SCHEMES = ("http", "https", "ftp", "file")


def cache_root() -> Path:
    """Return the cache: $KERAS_HOME or ~/.keras, or .keras among the temporary files if need be."""
    root = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / ".keras"
    return root if os.access(root, os.W_OK) else Path(tempfile.gettempdir()) / ".keras"


def get_file(
    fname: str | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | list[str] | tuple[str, ...] | None = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    force_download: bool = False,
) -> str:
    """Return the path of a file from `origin`, downloaded unless the cache has it.

    The file appears under its name only when it is complete and its checksum is right.

    Args:
        fname: name in the cache, no path; default the last part of `origin`.
        origin: URL (http, https, ftp, file); None: the file must be in the cache.
        untar: deprecated in Keras: the same as `extract`.
        md5_hash: deprecated in Keras: a `file_hash` made by MD5; None: not checked.
        file_hash: checksum in hexadecimal digits; a cached file without it is downloaded again;
            None: not checked.
        cache_subdir: folder in the cache.
        hash_algorithm: "sha256", "md5", or "auto": what the number of digits says.
        extract: unpack a tar or zip archive; the folder of its members is returned.
        archive_format: "auto", "tar", "zip" or a list of them: what may be unpacked.
        cache_dir: the cache; default $KERAS_HOME or ~/.keras.
        force_download: download even if the cache has the file.

    Raises:
        ValueError: bad arguments, a wrong checksum, an archive that is none or is unsafe.
        ConnectionError: the download failed; the message says where to put the file manually.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> size = (folder / "a.txt").write_text("hello")
        >>> path = get_file(origin=(folder / "a.txt").as_uri(), cache_dir=folder)
        >>> pathlib.Path(path).read_text()
        'hello'
    """
    if not origin:
        raise ValueError('get_file: expected "origin", the URL of the file, got none.')
    name = _file_name(fname, origin)
    if md5_hash is not None and file_hash is None:
        file_hash, hash_algorithm = md5_hash, "md5"
    folder = Path(cache_dir) if cache_dir is not None else cache_root()
    folder = folder / cache_subdir
    folder.mkdir(parents=True, exist_ok=True)
    unpack = extract or untar
    target = folder / (f"{name}_archive" if unpack else name)
    fresh = force_download or not _is_good(target, file_hash, hash_algorithm)
    if fresh:
        download(origin, target, file_hash, hash_algorithm)
    if not unpack:
        return str(target)
    if fresh or not (folder / name).is_dir():
        extract_archive(target, folder / name, archive_format)
    return str(folder / name)


def _file_name(fname: str | None, origin: str) -> str:
    import urllib.parse

    if fname is None:
        fname = os.path.basename(urllib.parse.unquote(urllib.parse.urlsplit(origin).path))
        if not fname:
            raise ValueError(f'get_file: origin {origin!r} ends in no file name; pass "fname".')
    name = os.fspath(fname)
    if name != os.path.basename(name) or name in (".", "..") or "\\" in name:
        raise ValueError(
            f"get_file: fname must be a name without folders, got {name!r}; "
            "cache_dir and cache_subdir say where the file goes."
        )
    return name


def _algorithm(file_hash: str, hash_algorithm: str) -> str:
    if hash_algorithm == "auto":
        hash_algorithm = {64: "sha256", 32: "md5"}.get(len(file_hash), "unknown")
    if hash_algorithm not in ("sha256", "md5"):
        raise ValueError(
            "hash_algorithm: expected 'sha256' (64 digits), 'md5' (32 digits) or 'auto', got "
            f"{hash_algorithm!r} and a hash of {len(file_hash)} digits."
        )
    return hash_algorithm


def _is_good(path: Path, file_hash: str | None, hash_algorithm: str) -> bool:
    if not path.is_file():
        return False
    if file_hash is None:
        return True
    digest = hashlib.new(_algorithm(file_hash, hash_algorithm), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() == file_hash.lower():
        return True
    warnings.warn(
        f"{path} is incomplete or outdated ({digest.name} is {digest.hexdigest()}, expected "
        f"{file_hash}): it is downloaded again.",
        stacklevel=3,
    )
    return False


def download(
    origin: str, target: Path, file_hash: str | None = None, hash_algorithm: str = "auto"
) -> None:
    """Fetch `origin` into `target` under another name, check it, and rename it: all or nothing.

    Raises:
        ConnectionError: the server cannot be reached, refuses, or stops in the middle.
        ValueError: the checksum is another one, or the URL's scheme is unknown.
    """
    scheme = origin.partition(":")[0].lower()
    if scheme not in _SCHEMES:
        raise ValueError(f"origin: expected a URL of {', '.join(_SCHEMES)}, got {origin!r}.")
    algorithm = None if file_hash is None else _algorithm(file_hash, hash_algorithm)
    handle, part = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            result = _receive(origin, file, target, algorithm)
        if file_hash is not None and result != file_hash.lower():
            raise ValueError(
                f"{origin}: the {algorithm} of the download is {result}, expected {file_hash}. "
                "Nothing was kept."
            )
        os.chmod(part, 0o644)
        os.replace(part, target)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _receive(origin: str, file: Any, target: Path, algorithm: str | None) -> str:
    """Write the body of `origin` into `file`; return its digest."""
    import http.client
    import urllib.error
    import urllib.request

    digest = hashlib.new(algorithm or "sha256", usedforsecurity=False)
    received, size = 0, None
    try:
        with urllib.request.urlopen(origin, timeout=_SECONDS) as response:
            length = response.headers.get("Content-Length")
            size = None if length is None else int(length)
            with _progress(origin, size) as bar:
                while chunk := response.read(_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    received += len(chunk)
                    bar.update(len(chunk))
    except urllib.error.HTTPError as error:
        raise ConnectionError(_failed(origin, target, f"{error.code} {error.reason}")) from error
    except urllib.error.URLError as error:
        raise ConnectionError(_failed(origin, target, str(error.reason))) from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise ConnectionError(_failed(origin, target, repr(error))) from error
    if size is not None and received < size:
        raise ConnectionError(
            _failed(origin, target, f"the connection ended after {received} of {size} bytes")
        )
    return digest.hexdigest()


def _failed(origin: str, target: Path, why: str) -> str:
    return (
        f"Could not download {origin}: {why}. Without network: put the file at {target} manually, "
        "or let KERASISH_DATASETS_URL name a folder that has it (for the named data sets)."
    )


def _progress(origin: str, size: int | None) -> Any:
    from tqdm.auto import tqdm

    quiet = None if config.is_interactive_logging_enabled() else True  # None: terminals only
    name = origin.rpartition("/")[2]
    return tqdm(total=size, unit="B", unit_scale=True, unit_divisor=1024, desc=name, disable=quiet)
