"""A server in a thread of the tests, such as the explorer's, and requests to it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from uvicorn import Server

from seq2seq_attn.explorer.server import Look, application, listen, server_of


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served(NamedTuple):
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """Send one request; the names of headers are written with `_`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def look(self, **request: Any) -> Answer:
        """Ask for a look; what the request leaves out is as the page sends it first."""
        whole = {"model": 0, "source": "", "search": None, "target": None, "target_tokens": None, "prefix": None}
        whole |= {"interventions": [], "hide": [], "tree": False} | request
        return self.ask("POST", "/api/look", json.dumps(whole).encode(), content_type="application/json")


@contextmanager
def serving(models: dict[str, Any], look: Look) -> Iterator[Served]:
    """Serve on a free port until the block ends."""
    with listen(None) as listener, ThreadPoolExecutor(1) as worker:
        port = listener.getsockname()[1]
        with running(server_of(application(models, look, port, worker)), listener):
            yield Served(port)


@contextmanager
def running(server: Server, listener: socket.socket) -> Iterator[None]:
    """Run a server in a thread until the block ends."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
