"""The explorer's server: the page and its JSON, for browsers of this machine alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import traceback
import webbrowser
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

from seq2seq_attn.errors import UserError, one_line

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import Headers, MutableHeaders
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise UserError(
        f"the explorer's server needs {error.name}, which is not installed; pip install 'seq2seq_attn[explore]', or "
        "write one file with page=FILE.html input=FILE"
    ) from error

HOST = "127.0.0.1"
PAGE = Path(__file__).with_name("page")
MOST_BYTES = 1 << 20  # of a request: 100,000 characters, each of which JSON may write in six bytes
MOST_WAITING = 64  # requests at once, the one that is computed among them
CHUNK = 1 << 18  # bytes that are sent at once
READ_SECONDS = 10  # after which a browser that does not send its request is given up
POLL_SECONDS = 0.1  # between two looks at whether the browser of a computation has left
SEND_SECONDS = 60  # after which a browser that does not read its answer is given up
LEAVE_SECONDS = 0.5
INTERRUPTED = 130
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
Models = Callable[[], dict[str, Any]]
Look = Callable[[dict[str, Any], threading.Event], dict[str, Any]]


def listen(port: int | None) -> socket.socket:
    """Return a socket on 127.0.0.1 that already accepts connections; without a port it has a free one."""
    try:
        return socket.create_server((HOST, port or 0), backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"port={port} of {HOST} cannot be used ({reason}); give another, or leave it out for a free one"
        ) from error


def serve(models: Models, look: Look, listener: socket.socket, *, open_browser: bool) -> None:
    """Print the address and answer until a signal ends the process.

    Args:
        models: returns what `/api/models` answers.
        look: answers a request of `/api/look`, or raises a UserError; it may stop when its event is set.
    """
    port = listener.getsockname()[1]
    with ThreadPoolExecutor(1, "explorer") as worker:
        server = server_of(application(models(), look, port, worker))
        address = f"http://{HOST}:{port}/"
        print(f"Explorer: {address} (Ctrl-C ends it)", flush=True)
        if open_browser:
            webbrowser.open(address)
        try:
            server.run(sockets=[listener])
        except (KeyboardInterrupt, SystemExit) as left:
            leave_computation(worker, INTERRUPTED if isinstance(left, KeyboardInterrupt) else left.code)
            raise


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return a server that prints nothing."""
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical", access_log=False,
        server_header=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return uvicorn.Server(config)


def application(models: dict[str, Any], look: Look, port: int, worker: ThreadPoolExecutor) -> ASGIApp:
    """Return the application for a port, which computes in the thread of `worker`."""

    async def answer_models(request: Request) -> Response:
        return JSONResponse(models)

    routes = [
        Route("/api/models", answer_models),
        Route("/api/look", LookEndpoint(look, worker), methods=["POST"]),
        Route("/favicon.ico", no_icon),
        Mount("/", StaticFiles(directory=PAGE, html=True)),
    ]
    return Guard(Starlette(routes=routes), port)


async def no_icon(request: Request) -> Response:
    """Answer a browser that asks for an icon of the site with nothing."""
    return Response(status_code=204)


@final
class Guard:
    """Refuses requests under another host name or of another site's page, and adds the headers that confine the page.

    A page of another site reaches 127.0.0.1 by a name of its own that resolves to it (DNS rebinding); its Host differs.
    """

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = [f"{name}:{port}" for name in (HOST, "localhost")]
        if port == 80:  # which browsers leave out
            self._hosts += [HOST, "localhost"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        added = HEADERS | {"cache-control": "no-store" if scope["path"].startswith("/api/") else "no-cache"}

        async def send_confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(added)
            await send(message)

        headers = Headers(scope=scope)
        origins = [f"http://{host}" for host in self._hosts]
        known = headers.get("host", "").lower() in self._hosts
        if known and headers.get("origin", origins[0]).lower() in origins:
            await self._app(scope, receive, send_confined)
            return
        sentence = (
            f"The explorer answers its own page at http://{self._hosts[0]}/ only; through a tunnel, keep the port: "
            f"ssh -L {self._hosts[0].rpartition(':')[2]}:{self._hosts[0]} HOST"
        )
        await refusal(403, sentence)(scope, receive, send_confined)


@final
class LookEndpoint:
    """Answers the requests of `/api/look` one at a time, in the order in which they came.

    The turn of a request ends when its answer is sent, so at most one answer is in memory. A browser that has left when
    its turn comes is skipped, and the computation of one that leaves later is stopped.
    """

    def __init__(self, look: Look, worker: ThreadPoolExecutor) -> None:
        self._look, self._worker = look, worker
        self._turn, self._waiting = asyncio.Lock(), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._waiting >= MOST_WAITING:
            sentence = f"{MOST_WAITING} requests are waiting; try again when some are answered"
            await refusal(429, sentence)(scope, receive, send)
            return
        self._waiting += 1
        try:
            await self._answer(Request(scope, receive), send)
        except ClientDisconnect:
            pass
        finally:
            self._waiting -= 1

    async def _answer(self, request: Request, send: Send) -> None:
        response: Response
        try:
            async with asyncio.timeout(READ_SECONDS):
                given = await read_json(request)
        except TimeoutError:
            given = refusal(408, f"The request did not arrive within {READ_SECONDS} seconds; send it again")
        if isinstance(given, Response):
            await given(request.scope, request.receive, send)
            return
        async with self._turn:
            if await request.is_disconnected():
                return
            status, body = await self._compute(request, given)
            headers = {"content-length": str(len(body))}
            response = StreamingResponse(chunks(body), status, headers, media_type="application/json")
            async with asyncio.timeout(SEND_SECONDS):
                await response(request.scope, request.receive, send)

    async def _compute(self, request: Request, given: dict[str, Any]) -> tuple[int, bytes]:
        """Return status and body; ask the computation to stop if the browser leaves."""
        stopped = threading.Event()
        loop = asyncio.get_running_loop()
        computation = loop.run_in_executor(self._worker, computed, self._look, given, stopped)
        while not (await asyncio.wait([computation], timeout=POLL_SECONDS))[0]:
            if await request.is_disconnected():
                stopped.set()
                break
        return await computation


async def read_json(request: Request) -> dict[str, Any] | Response:
    """Return the object that a request holds, or what refuses it; a body that is too long is not read to its end."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return refusal(415, "A request is JSON; send it as application/json")
    too_long = refusal(413, f"The request is longer than {MOST_BYTES:,} bytes; give a shorter text")
    length = request.headers.get("content-length", "0")
    if int(length) > MOST_BYTES:  # h11 has refused what is no number
        return too_long
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return too_long
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        return refusal(400, f"The request is not JSON: {one_line(error)}")
    return given if isinstance(given, dict) else refusal(400, "The request is not a JSON object")


def computed(look: Look, given: dict[str, Any], stopped: threading.Event) -> tuple[int, bytes]:
    """Return status and body of the answer to a request.

    A user's mistake, such as a sentence that is too long, is an answer: browsers print other statuses to their console.
    """
    try:
        return 200, json.dumps(look(given, stopped), allow_nan=False, separators=(",", ":")).encode()
    except UserError as error:
        return 200, error_body(str(error))
    except Exception as error:
        traceback.print_exc()  # a bug, or no memory: for the terminal
        return 500, error_body(f"The computation failed ({type(error).__name__}: {one_line(error)[:200]})")


def error_body(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()


def refusal(status: int, sentence: str) -> Response:
    return Response(error_body(sentence), status, media_type="application/json")


async def chunks(body: bytes) -> AsyncIterator[bytes]:
    """Yield parts, after each of which the server waits until the browser has read what was sent."""
    for start in range(0, len(body), CHUNK):
        yield body[start : start + CHUNK]


def leave_computation(worker: ThreadPoolExecutor, code: object) -> None:
    """Exit at once if a computation still runs, for which the interpreter would wait."""
    try:
        worker.submit(int).result(LEAVE_SECONDS)
    except TimeoutError:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 1)
