"""The explorer's server: whom it answers, in which order, and what it refuses."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from explorer.served import Served, serving

from seq2seq_attn.errors import UserError
from seq2seq_attn.explorer import server


class Echo:
    """A look that says what it was asked; it waits where `gate` is closed, until it is stopped, and counts."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.running = self.most_running = 0
        self.stopped: list[str] = []

    def __call__(self, request: dict[str, Any], stopped: threading.Event) -> dict[str, Any]:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            self.asked.append(request["source"])
            while not self.gate.wait(0.01):
                if stopped.is_set():
                    self.stopped.append(request["source"])
                    raise UserError("the search was stopped")
            if request["source"] == "refused":
                raise UserError("source= is refused; give another")
            if request["source"] == "broken":
                raise RuntimeError("the search failed\nat line 7")
            return {"source": request["source"], "padding": "x" * request.get("size", 0)}
        finally:
            self.running -= 1


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def served(echo: Echo) -> Iterator[Served]:
    with serving({"models": ["a"]}, echo) as one:
        yield one
        echo.gate.set()


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "nothing happened within 20 seconds"
        time.sleep(0.01)


def test_the_page_and_its_models_are_served_with_a_policy_that_admits_nothing_else(served: Served) -> None:
    page, models = served.ask("GET", "/"), served.ask("GET", "/api/models")
    assert (page.status, models.status, models.json) == (200, 200, {"models": ["a"]})
    assert page.headers["content-type"].startswith("text/html")
    for answer in (page, models, served.ask("GET", "/nothing"), served.ask("GET", "/", Host="evil.example")):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert models.headers["cache-control"] == "no-store"
    assert "server" not in models.headers


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "//etc/passwd", "/main.py"])
def test_no_file_outside_of_the_page_is_served(served: Served, path: str) -> None:
    assert served.ask("GET", path).status == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://127.0.0.1:{port}"},
    ],
)
def test_another_host_or_origin_is_refused(served: Served, echo: Echo, headers: dict[str, str]) -> None:
    given = {name: value.format(port=served.port) for name, value in headers.items()}
    for answer in (
        served.ask("GET", "/", **given),
        served.ask("GET", "/api/models", **given),
        served.ask("POST", "/api/look", b'{"source": "a"}', content_type="application/json", **given),
    ):
        assert answer.status == 403
        assert answer.json["error"].startswith(f"The explorer answers its own page at {served.address} only; ")
    assert echo.asked == []


def test_both_names_of_this_machine_are_answered(served: Served) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        host = f"{name}:{served.port}"
        assert served.ask("GET", "/api/models", Host=host, Origin=f"http://{host}").status == 200


def test_a_users_mistake_is_a_sentence_and_a_bug_has_its_traceback_on_the_terminal_alone(
    served: Served, capfd: pytest.CaptureFixture[str]
) -> None:
    refused, broken = served.look(source="refused"), served.look(source="broken")
    assert (refused.status, refused.json) == (200, {"error": "source= is refused; give another"})
    assert broken.status == 500
    assert broken.json == {"error": "The computation failed (RuntimeError: the search failed)"}
    assert "Traceback" in capfd.readouterr().err
    assert served.look(source="next").json["source"] == "next"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b"1" * 10_000], ids=range(8)
)
def test_what_is_not_a_json_object_is_refused(served: Served, body: bytes) -> None:
    answer = served.ask("POST", "/api/look", body, content_type="application/json")
    assert answer.status == 400
    assert answer.json["error"].startswith("The request is not ")


def test_a_form_of_another_page_is_refused(served: Served) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert served.ask("POST", "/api/look", b'{"source": "a"}', content_type=kind).status == 415
    assert served.ask("GET", "/api/look").status == 404


def test_a_long_body_is_refused_before_it_is_read(served: Served, echo: Echo) -> None:
    with socket.create_connection(("127.0.0.1", served.port), 20) as told:
        head = f"POST /api/look HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Type: application/json\r\n"
        told.sendall(f"{head}Content-Length: {10**12}\r\n\r\n".encode())
        assert told.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
    with socket.create_connection(("127.0.0.1", served.port), 20) as chunked:
        chunked.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        part = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(server.MOST_BYTES // 0x10000 + 1):
            chunked.sendall(part)
        assert chunked.recv(1 << 16).startswith(b"HTTP/1.1 413 ")
    assert echo.asked == []


def test_fifty_parallel_requests_are_computed_one_at_a_time_and_none_is_lost(served: Served, echo: Echo) -> None:
    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(lambda n: served.look(source=f"text {n}", size=100_000), range(50)))
    assert [answer.json["source"] for answer in answers] == [f"text {n}" for n in range(50)]
    assert all(len(answer.json["padding"]) == 100_000 for answer in answers)
    assert echo.most_running == 1


def test_more_requests_than_the_queue_holds_are_refused(
    served: Served, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_WAITING", 3)
    echo.gate.clear()
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(served.look, source=f"text {n}") for n in range(8)]
        wait_until(lambda: sum(answer.done() for answer in answers) == 5)
        echo.gate.set()
    statuses = [answer.result().status for answer in answers]
    assert sorted(statuses) == [200] * 3 + [429] * 5
    assert served.look(source="later").status == 200


def head_of(served: Served, length: int) -> bytes:
    """Return the lines before the body of a request."""
    lines = ("POST /api/look HTTP/1.1", f"Host: 127.0.0.1:{served.port}", "Content-Type: application/json")
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


@contextmanager
def leaving(served: Served, source: str) -> Iterator[None]:
    """Send a request, and leave at the end of the block without its answer."""
    body = json.dumps({"source": source}).encode()
    with socket.create_connection(("127.0.0.1", served.port), 20) as connection:
        connection.sendall(head_of(served, len(body)) + body)
        yield


def test_the_request_of_a_browser_that_has_left_is_not_computed(
    served: Served, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    read_json = server.read_json

    async def recorded(request: Any) -> Any:
        given = await read_json(request)
        read.append(given["source"])
        return given

    monkeypatch.setattr(server, "read_json", recorded)
    echo.gate.clear()
    with ThreadPoolExecutor(2) as clients:
        first = clients.submit(served.look, source="first")
        wait_until(lambda: echo.asked == ["first"])
        with leaving(served, "left"):
            wait_until(lambda: read == ["first", "left"])
        last = clients.submit(served.look, source="last")
        wait_until(lambda: read == ["first", "left", "last"])
        echo.gate.set()
        assert (first.result().status, last.result().status) == (200, 200)
    assert echo.asked == ["first", "last"]


def test_the_computation_of_a_browser_that_leaves_is_stopped(served: Served, echo: Echo) -> None:
    echo.gate.clear()
    with leaving(served, "left"):
        wait_until(lambda: echo.asked == ["left"])
        assert echo.stopped == []
    wait_until(lambda: echo.stopped == ["left"])
    echo.gate.set()
    assert served.look(source="next").json["source"] == "next"


def test_a_request_that_does_not_arrive_leaves_its_place(
    served: Served, echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_WAITING", 1)
    monkeypatch.setattr(server, "READ_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port), 20) as idle:
        idle.sendall(head_of(served, 100) + b"{")
        assert idle.recv(1 << 16).startswith(b"HTTP/1.1 408 ")
        assert served.look(source="next").status == 200


def test_a_port_in_use_is_one_sentence(served: Served) -> None:
    with pytest.raises(
        UserError, match=f"^port={served.port} of 127.0.0.1 cannot be used \\(Address already in use\\)"
    ):
        server.listen(served.port)
