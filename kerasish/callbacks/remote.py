"""RemoteMonitor: sends each epoch's logs to a web server."""

from __future__ import annotations

import json
import urllib.parse
import warnings
from typing import Any

import numpy as np

from kerasish.callbacks.callback import Callback, Logs
from kerasish.callbacks.values import plain
from kerasish.typing import Array

_SECONDS_TO_WAIT = 10.0


class RemoteMonitor(Callback):
    """Posts {"epoch": number, "loss": ..., ...} to `root + path` after each epoch.

    If the server cannot be reached, a warning is given and training continues.

    Args:
        root: the server, "http://host:port".
        path: the path on the server.
        field: the field of the form that holds the JSON; not used with `send_as_json`.
        headers: additional headers of the request; None: none.
        send_as_json: whether the body is JSON ("application/json") instead of a form.

    Example:
        >>> RemoteMonitor("http://localhost:9000").root
        'http://localhost:9000'
    """

    everywhere = False

    def __init__(
        self,
        root: str = "http://localhost:9000",
        path: str = "/publish/epoch/end/",
        field: str = "data",
        headers: dict[str, str] | None = None,
        send_as_json: bool = False,
    ) -> None:
        super().__init__()
        self.root, self.path, self.field = root, path, field
        self.headers, self.send_as_json = headers, send_as_json

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        event = {"epoch": epoch, **{k: _for_json(v) for k, v in (logs or {}).items()}}
        from urllib.request import urlopen  # slow to import

        request = self._request(json.dumps(event))
        try:
            with urlopen(request, timeout=_SECONDS_TO_WAIT) as answer:
                answer.read()
        except OSError as error:  # URLError is one
            warnings.warn(
                f"RemoteMonitor: could not hand epoch {epoch + 1} to {request.full_url}: {error}",
                stacklevel=2,
            )

    def _request(self, text: str) -> Any:
        from urllib.request import Request

        url = self.root + self.path
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"RemoteMonitor: root must be an http(s) address, got {self.root!r}")
        kind = "application/json" if self.send_as_json else "application/x-www-form-urlencoded"
        body = text if self.send_as_json else urllib.parse.urlencode({self.field: text})
        headers = {"Content-Type": kind, **(self.headers or {})}
        return Request(url, body.encode(), headers, method="POST")


def _for_json(value: Array) -> float | list[float]:
    """Return a value of the logs converted for JSON."""
    value = plain(value)
    return value.tolist() if isinstance(value, np.ndarray) else value
