"""The explorer's server: the page and its JSON, for browsers of this machine alone."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import traceback
import webbrowser
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, final

from seq2seq_attn.errors import UserError, one_line

try:
    import uvicorn  # noqa: F401, which json_server needs
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp, Receive, Scope, Send

    from seq2seq_attn.inference.json_server import (
        HEADERS,
        HOST,
        Guard,
        WaitingRequests,
        bind,
        error_body,
        local_hosts,
        read_object,
        run,
        send_body,
        server_of,
    )
except ImportError as error:
    raise UserError(
        f"the explorer's server needs {error.name}, which is not installed; pip install 'seq2seq_attn[explore]', or "
        "write one file with page=FILE.html input=FILE"
    ) from error

PAGE = Path(__file__).with_name("page")
MOST_BYTES = 1 << 20  # of a request: 100,000 characters, each of which JSON may write in six bytes
MOST_WAITING = 64  # requests at once, the one that is computed among them
READ_SECONDS = 10  # after which a browser that does not send its request is given up
POLL_SECONDS = 0.1  # between two looks at whether the browser of a computation has left
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Models = Callable[[], dict[str, Any]]
Look = Callable[[dict[str, Any], threading.Event], dict[str, Any]]


def listen(port: int | None) -> socket.socket:
    """Return a socket on 127.0.0.1 that already accepts connections; without a port it has a free one."""
    return bind(HOST, port or 0, "give another, or leave it out for a free one")


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
        run(server, listener, worker)


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
    sentence = (
        f"The explorer answers its own page at http://{HOST}:{port}/ only; through a tunnel, keep the port: "
        f"ssh -L {port}:{HOST}:{port} HOST"
    )
    return Guard(Starlette(routes=routes), local_hosts(port), sentence, headers_of)


def headers_of(path: str) -> dict[str, str]:
    """Return the headers that confine the page, and keep answers out of caches."""
    cache = "no-store" if path.startswith("/api/") else "no-cache"
    return HEADERS | {"content-security-policy": POLICY, "cache-control": cache}


async def no_icon(request: Request) -> Response:
    """Answer a browser that asks for an icon of the site with nothing."""
    return Response(status_code=204)


@final
class LookEndpoint:
    """Answers the requests of `/api/look` one at a time, in the order in which they came.

    The turn of a request ends when its answer is sent, so at most one answer is in memory. A browser that has left when
    its turn comes is skipped, and the computation of one that leaves later is stopped.
    """

    def __init__(self, look: Look, worker: ThreadPoolExecutor) -> None:
        self._look, self._worker = look, worker
        self._turn, self._waiting = asyncio.Lock(), WaitingRequests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._waiting(self._answer, Request(scope, receive), send, most=MOST_WAITING, status=429)

    async def _answer(self, request: Request, send: Send) -> None:
        given = await read_json(request)
        if isinstance(given, Response):
            await given(request.scope, request.receive, send)
            return
        async with self._turn:
            if await request.is_disconnected():
                return
            status, body = await self._compute(request, given)
            await send_body(status, body, request, send)

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
    """Return the object that a request holds, or what refuses it."""
    return await read_object(request, most_bytes=MOST_BYTES, seconds=READ_SECONDS)


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
