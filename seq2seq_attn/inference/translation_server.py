"""Translation over HTTP: `POST /translate` and `GET /health`. Texts that wait for the model are one batch."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple, final

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference.json_fields import check_int, check_list, check_object, shown
from seq2seq_attn.inference.translator import Translation

try:
    import uvicorn  # noqa: F401, which json_server needs
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

    from seq2seq_attn.inference.json_server import (
        HEADERS,
        Guard,
        WaitingRequests,
        bind,
        error_body,
        local_hosts,
        read_object,
        refusal,
        run,
        send_body,
        server_of,
    )
except ImportError as error:
    raise UserError(
        f"the translation server needs {error.name}, which is not installed; pip install 'seq2seq_attn[serve]'"
    ) from error

MOST_BYTES = 1 << 20  # of a request
MOST_TEXTS = 1_000  # of a request
MOST_WAITING = 256  # requests at once, those that are translated among them
READ_SECONDS = 10  # after which a client that does not send its request is given up
GRACEFUL_SECONDS = 5  # for the requests that wait when a signal ends the server
CONFINED = HEADERS | {
    "cache-control": "no-store", "content-security-policy": "default-src 'none'; frame-ancestors 'none'"
}  # fmt: skip
Translate = Callable[[list[str], list[str] | None], list[Translation]]


class TranslationRequest(NamedTuple):
    """Texts to translate; `n_best` asks for several translations of each.

    Attributes:
        prefixes: what each translation begins with; None: they are free.
    """

    texts: list[str]
    n_best: int | None
    prefixes: list[str] | None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that already accepts connections.

    Raises:
        UserError: if the address cannot be used, or is empty, which would be that of every network.
    """
    if not host:
        raise UserError("host= names no address; give host=127.0.0.1, or host=0.0.0.0 for every network of the machine")
    return bind(host, port, "give another port, port=0 for a free one, or an IPv4 address of this machine as host")


def serve_translations(
    translate: Translate,
    listener: socket.socket,
    *,
    batch_sentences: int,
    most_hypotheses: int,
    no_prefixes: str | None,
) -> None:
    """Print the address and answer until a signal ends the process.

    Args:
        translate, batch_sentences, most_hypotheses, no_prefixes: as of `TranslateEndpoint`.
    """
    with ThreadPoolExecutor(1, "translator") as worker:
        endpoint = TranslateEndpoint(
            translate, worker, batch_sentences=batch_sentences, most_hypotheses=most_hypotheses, no_prefixes=no_prefixes
        )
        address, port = listener.getsockname()
        print(f"Translation server: http://{address}:{port}/translate (Ctrl-C ends it)", flush=True)
        run(server_of(application(endpoint, address, port), GRACEFUL_SECONDS), listener, worker)


def application(endpoint: TranslateEndpoint, address: str, port: int) -> ASGIApp:
    """Return the application; on an address of this machine alone it answers requests to that address alone."""

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok", "waiting": endpoint.waiting.number})

    routes = [Route("/translate", endpoint, methods=["POST"]), Route("/health", health)]
    hosts: list[str] | None = None
    sentence = "The server answers programs, not pages in a browser; have a proxy leave out the header Origin"
    if ipaddress.ip_address(address).is_loopback:
        hosts = local_hosts(port, address)
        sentence = (
            f"The server answers programs of its machine at http://{hosts[0]}/ alone; have a proxy send Host: "
            f"{hosts[0]} and no Origin, or start the server with host=0.0.0.0"
        )
    app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
    app.router.redirect_slashes = False  # an empty answer, where every other is JSON
    return Guard(app, hosts, sentence, lambda _: CONFINED)


async def no_route(request: Request, error: Exception) -> Response:
    """Refuse another path or method."""
    assert isinstance(error, HTTPException)
    response = refusal(error.status_code, "The server answers POST /translate and GET /health")
    response.headers.update(error.headers or {})
    return response


class Pending(NamedTuple):
    """Texts of a request that wait for their translations; None: its client has left."""

    request: Request
    texts: list[str]
    prefixes: list[str] | None
    translations: asyncio.Future[list[Translation] | None]


@final
class TranslateEndpoint:
    """Answers `POST /translate`; requests that arrive while the model is busy are translated together.

    One thread translates. When it is free, it takes the requests that wait, in their order and up to
    `batch_sentences` texts; a request with more waits again before each further batch of its texts, so that it does not
    hold up the others. A client that has left is skipped.

    Args:
        translate: returns the translation of each text, which begins with its prefix and depends on no other text.
        worker: of one thread.
        most_hypotheses: that the search finds of a text.
        no_prefixes: the sentence that refuses a request with a prefix; None: the model takes one.
    """

    def __init__(
        self,
        translate: Translate,
        worker: ThreadPoolExecutor,
        *,
        batch_sentences: int,
        most_hypotheses: int,
        no_prefixes: str | None = None,
    ) -> None:
        self._translate, self._worker = translate, worker
        self._batch_sentences, self._most_hypotheses = batch_sentences, most_hypotheses
        self._no_prefixes = no_prefixes
        self._turn, self._pending = asyncio.Lock(), deque[Pending]()
        self.waiting = WaitingRequests()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.waiting(self._answer, Request(scope, receive), send, most=MOST_WAITING, status=503)

    async def _answer(self, request: Request, send: Send) -> None:
        given = await read_object(request, most_bytes=MOST_BYTES, seconds=READ_SECONDS)
        if isinstance(given, Response):
            await given(request.scope, request.receive, send)
            return
        try:
            asked = parse_request(given, self._most_hypotheses, self._no_prefixes)
        except UserError as error:
            await send_body(400, error_body(str(error)), request, send)
            return
        try:
            translations = await self._translations(request, asked)
            if translations is None:
                return
            status, body = 200, answer_body(translations, asked.n_best)
        except asyncio.CancelledError:
            await refusal(503, "The server ends; ask again when it runs")(request.scope, request.receive, send)
            raise
        except UserError as error:  # the model's numbers overflow
            status, body = 500, error_body(str(error))
        except Exception as error:
            traceback.print_exception(error)  # a bug, or no memory: for the terminal alone
            status, body = 500, error_body(f"The translation failed ({type(error).__name__}); the server printed why")
        await send_body(status, body, request, send)

    async def _translations(self, request: Request, asked: TranslationRequest) -> list[Translation] | None:
        """Return the translations of a request, of as many texts at once as a batch has; None: its client has left."""
        texts, prefixes, most = asked.texts, asked.prefixes, self._batch_sentences
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        translations: dict[int, Translation] = {}
        for rows in (order[start : start + most] for start in range(0, len(order), most)):
            begun = None if prefixes is None else [prefixes[row] for row in rows]
            translated = await self._in_turn(request, [texts[row] for row in rows], begun)
            if translated is None:
                return None
            translations |= zip(rows, translated, strict=True)
        return [translations[row] for row in range(len(texts))]

    async def _in_turn(
        self, request: Request, texts: list[str], prefixes: list[str] | None
    ) -> list[Translation] | None:
        """Return the translations of texts that wait for their turn; None: the client of their request has left."""
        own = Pending(request, texts, prefixes, asyncio.get_running_loop().create_future())
        self._pending.append(own)
        async with self._turn:  # the requests before this one have had theirs
            while not own.translations.done():
                if batch := await self._next_batch():
                    await self._translate_batch(batch)
        return await own.translations

    async def _next_batch(self) -> list[Pending]:
        """Return the first requests that wait, and answer those whose clients have left."""
        batch: list[Pending] = []
        num_texts = 0
        while self._pending:
            num_texts += len(self._pending[0].texts)
            if batch and num_texts > self._batch_sentences:
                break
            first = self._pending.popleft()
            if await first.request.is_disconnected():
                num_texts -= len(first.texts)
                first.translations.set_result(None)
            else:
                batch.append(first)
        return batch

    async def _translate_batch(self, batch: Sequence[Pending]) -> None:
        """Translate the texts of some requests at once; if that fails, each request alone, so that one fails alone."""
        texts = [text for one in batch for text in one.texts]
        prefixes = None
        if any(one.prefixes is not None for one in batch):
            prefixes = [prefix for one in batch for prefix in one.prefixes or [""] * len(one.texts)]
        computation = asyncio.get_running_loop().run_in_executor(self._worker, self._translate, texts, prefixes)
        await asyncio.wait([computation])
        error = computation.exception()
        if error is None:
            translations = iter(computation.result())
            for one in batch:
                one.translations.set_result(list(islice(translations, len(one.texts))))
        elif len(batch) == 1:
            batch[0].translations.set_exception(error)
        else:
            for one in batch:
                await self._translate_batch([one])


def parse_request(data: dict[str, Any], most_hypotheses: int, no_prefixes: str | None) -> TranslationRequest:
    """Return the texts of a request, what their translations begin with, and how many of each it asks for.

    Raises:
        UserError: for anything else, in one sentence.
    """
    given = check_object(data, ("text", "n_best", "prefix"), "a request")
    n_best, prefix = given.get("n_best"), given.get("prefix")
    texts = check_texts(given.get("text"), "text")
    prefixes = None if prefix is None else check_texts(prefix, "prefix")
    if no_prefixes is not None and any(prefixes or ()):
        raise UserError(no_prefixes)
    if prefixes is not None and len(prefixes) != len(texts):
        raise UserError(f"there are {len(texts):,} texts and {len(prefixes):,} prefixes; give one for each, or none")
    if isinstance(n_best, int) and n_best > most_hypotheses:
        raise UserError(
            f"n_best={shown(n_best)} must be at most {most_hypotheses}, the number that the search of this server "
            "finds; start it with search=beam search.beam_size=... search.num_best=... for more"
        )
    if n_best is not None:
        check_int(n_best, "n_best", 1, most_hypotheses)
    return TranslationRequest(texts, n_best, prefixes if no_prefixes is None else None)  # empty ones say nothing


def check_texts(given: Any, name: str) -> list[str]:
    if not isinstance(given, str | list):
        raise UserError(f"{name}={shown(given)} must be a text or a list of texts")
    texts = check_list([given] if isinstance(given, str) else given, name, MOST_TEXTS)
    for one in texts:
        if not isinstance(one, str):
            raise UserError(f"{name} holds {shown(one)}, and must be a text or a list of texts")
    return texts


def answer_body(translations: Sequence[Translation], n_best: int | None) -> bytes:
    """Return the answer to a request in JSON, with all hypotheses of each text, best first, if it asks for them."""
    answers = []
    for one in translations:
        best = [hypothesis(each) for each in (one, *one.alternatives)[:n_best]]
        answers.append(best[0] | {"notes": one.notes} | ({} if n_best is None else {"n_best": best}))
    text = json.dumps({"translations": answers}, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace")  # half a surrogate pair, which UTF-8 cannot hold


def hypothesis(translation: Translation) -> dict[str, Any]:
    return {"text": translation.text, "log_prob": translation.log_prob, "score": translation.score}
