"""RemoteMonitor against a server of our own on the loopback."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse

import numpy as np
import pytest

from kerasish.callbacks import RemoteMonitor


@pytest.fixture
def server():
    received = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append((self.path, dict(self.headers), body))
            self.send_response(500 if "broken" in self.path else 200)
            self.end_headers()

        def log_message(self, *args):
            return None

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", received
        running.shutdown()


LOGS = {"loss": np.float32(0.5), "many": np.array([1.0, 2.0]), "accuracy": 0.25}
EVENT = {"epoch": 3, "loss": 0.5, "many": [1.0, 2.0], "accuracy": 0.25}


def test_a_form(server):
    root, received = server
    RemoteMonitor(root, headers={"X-Run": "7"}).on_epoch_end(3, LOGS)
    [(path, headers, body)] = received
    assert path == "/publish/epoch/end/"
    assert headers["X-Run"] == "7"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert json.loads(urllib.parse.parse_qs(body)["data"][0]) == EVENT


def test_json(server):
    root, received = server
    RemoteMonitor(root, path="/here", send_as_json=True).on_epoch_end(3, LOGS)
    [(path, headers, body)] = received
    assert path == "/here"
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == EVENT


def test_a_server_in_trouble_costs_a_warning(server):
    with pytest.warns(UserWarning, match=r"epoch 1 to .*/broken: HTTP Error 500"):
        RemoteMonitor(server[0], path="/broken").on_epoch_end(0, LOGS)


def test_no_server_costs_a_warning(server):
    free = "http://127.0.0.1:9"  # the port "discard", where no server listens
    with pytest.warns(UserWarning, match="could not hand epoch 1"):
        RemoteMonitor(free).on_epoch_end(0, LOGS)


def test_other_kinds_of_addresses_are_refused():
    with pytest.raises(ValueError, match="http"):
        RemoteMonitor("file:///etc").on_epoch_end(0, {})
