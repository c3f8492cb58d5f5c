"""The common part of the JSON servers: socket, admitted hosts, limits of a request, and the end of the process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import uvicorn
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq_attn.errors import INTERRUPTED, UserError, one_line
from seq2seq_attn.inference.http_connection import HTTPConnection, most_connections

HOST = "127.0.0.1"
CHUNK = 1 << 18  # bytes that are sent at once
KEEP_ALIVE_SECONDS = 75  # that a connection stays open between two requests; clients and proxies keep one for 60
SEND_SECONDS = 60  # after which a client that does not read its answer is given up
LEAVE_SECONDS = 0.5
HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
Answer = Callable[[Request, Send], Awaitable[None]]


def bind(host: str, port: int, way_out: str) -> socket.socket:
    """Return a socket that already accepts connections; port 0 is a free one.

    Args:
        way_out: ends the sentence about a port that cannot be used.
    """
    try:
        return socket.create_server((host, port), backlog=128)
    except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be one
        reason = (getattr(error, "strerror", None) or one_line(error)).partition(" (while ")[0]
        raise UserError(f"port={port} of {host} cannot be used ({reason}); {way_out}") from error


def server_of(app: ASGIApp, graceful_seconds: int = 1) -> uvicorn.Server:
    """Return a server that prints nothing.

    Args:
        graceful_seconds: that requests have to be answered when a signal ends the process.
    """
    config = uvicorn.Config(
        app, http=HTTPConnection, ws="none", lifespan="off", log_config=None, log_level="critical", access_log=False,
        server_header=False, timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=graceful_seconds, backlog=most_connections() // 4,
    )  # fmt: skip
    return uvicorn.Server(config)


def run(server: uvicorn.Server, listener: socket.socket, worker: ThreadPoolExecutor) -> None:
    """Answer until a signal ends the process, also while `worker` computes."""
    try:
        server.run(sockets=[listener])
    except (KeyboardInterrupt, SystemExit) as left:
        leave_computation(worker, INTERRUPTED if isinstance(left, KeyboardInterrupt) else left.code)
        raise


def leave_computation(worker: ThreadPoolExecutor, code: object) -> None:
    """Exit at once if a computation still runs, for which the interpreter would wait."""
    try:
        worker.submit(int).result(LEAVE_SECONDS)
    except TimeoutError:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)


def local_hosts(port: int, address: str = HOST) -> list[str]:
    """Return what browsers and programs of this machine give as the Host of their requests."""
    names = [address, "localhost"]
    return [f"{name}:{port}" for name in names] + (names if port == 80 else [])  # which browsers leave out


@final
class Guard:
    """Refuses requests under another host name or of another site's page, and adds headers to every answer.

    A page of another site reaches 127.0.0.1 by a name of its own that resolves to it (DNS rebinding); its Host differs.

    Args:
        hosts: that a request may name, and whose pages may send one; None: every host, and no page.
        sentence: of a refusal.
        headers: of an answer, by the path of its request.
    """

    def __init__(
        self, app: ASGIApp, hosts: Sequence[str] | None, sentence: str, headers: Callable[[str], Mapping[str, str]]
    ) -> None:
        self._app, self._hosts, self._sentence, self._headers = app, hosts, sentence, headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added = self._headers(scope["path"])

        async def send_confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(added)
            await send(message)

        admitted = self._app if self._admits(Headers(scope=scope)) else refusal(403, self._sentence)
        await admitted(scope, receive, send_confined)

    def _admits(self, headers: Headers) -> bool:
        """Whether a request may be answered; browsers add the Origin, which is that of the page."""
        origin = headers.get("origin")
        if self._hosts is None:
            return origin is None
        origins = [f"http://{host}" for host in self._hosts]
        known = headers.get("host", "").lower() in self._hosts
        return known and (origin is None or origin.lower() in origins)


@final
class WaitingRequests:
    """Counts the requests that are not answered yet, and refuses those above a limit."""

    def __init__(self) -> None:
        self.number = 0

    async def __call__(self, answer: Answer, request: Request, send: Send, *, most: int, status: int) -> None:
        """Answer a request, unless `most` are waiting: then refuse it with `status`."""
        if self.number >= most:
            sentence = f"{most} requests are waiting; try again when some are answered"
            await refusal(status, sentence)(request.scope, request.receive, send)
            return
        self.number += 1
        try:
            await answer(request, send)
        except ClientDisconnect:
            pass
        finally:
            self.number -= 1


async def read_object(request: Request, *, most_bytes: int, seconds: int | float) -> dict[str, Any] | Response:
    """Return the object that a request holds, or what refuses it; a body that is too long is not read to its end."""
    try:
        async with asyncio.timeout(seconds):
            body = await read_body(request, most_bytes)
    except TimeoutError:
        return refusal(408, f"The request did not arrive within {seconds} seconds; send it again")
    if isinstance(body, Response):
        return body
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        return refusal(400, f"The request is not JSON: {one_line(error)}")
    return given if isinstance(given, dict) else refusal(400, "The request is not a JSON object")


async def read_body(request: Request, most_bytes: int) -> bytearray | Response:
    """Return the body of a request, or what refuses it."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return refusal(415, "A request is JSON; send it as application/json")
    too_long = refusal(413, f"The request is longer than {most_bytes:,} bytes; give a shorter text")
    length = request.headers.get("content-length", "0")
    if int(length) > most_bytes:  # h11 has refused what is no number
        return too_long
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most_bytes:
            return too_long
    return body


async def send_body(status: int, body: bytes, request: Request, send: Send) -> None:
    """Send an answer in JSON; give up a client that does not read it."""
    headers = {"content-length": str(len(body))}
    response = StreamingResponse(chunks(body), status, headers, media_type="application/json")
    async with asyncio.timeout(SEND_SECONDS):
        await response(request.scope, request.receive, send)


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    """Yield parts, after each of which the server waits until the client has read what was sent."""
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]


def error_body(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()


def refusal(status: int, sentence: str) -> Response:
    return Response(error_body(sentence), status, media_type="application/json")
