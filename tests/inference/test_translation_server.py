"""Translation over HTTP: what is answered, what is translated together, and what is refused."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from explorer.served import Answer, Served, running
from explorer.test_server import wait_until
from explorer.three_models import translator_of
from starlette.requests import Request
from tiny import SENTENCES, of_text
from uvicorn import Config
from uvicorn.server import ServerState

from seq2seq_attn.errors import UserError
from seq2seq_attn.inference import http_connection, json_server, translation_server
from seq2seq_attn.inference.choose_search import choose_search
from seq2seq_attn.inference.json_server import server_of
from seq2seq_attn.inference.translation_server import TranslateEndpoint, application, listen
from seq2seq_attn.inference.translator import CONTINUES, Translation, Translator

BEAM = {"name": "beam", "beam_size": 3, "num_best": 2, "limits": {"max_length": 6}}
ALONE = "The server answers programs of its machine at http://127.0.0.1:{port}/ alone; "


class Gated:
    """A translator that notes every batch, waits while its gate is closed, and fails at some texts."""

    def __init__(self, translator: Translator) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[list[str]] = []
        self.prefixes: list[list[str] | None] = []
        self._translate = partial(translator.translate, search=choose_search(BEAM, {}))

    def __call__(self, texts: list[str], prefixes: list[str] | None) -> list[Translation]:
        self.batches.append(texts)
        self.prefixes.append(prefixes)
        assert self.gate.wait(20)
        if "overflow" in texts:
            raise UserError("the model's numbers overflow")
        if "broken" in texts:
            raise RuntimeError("the search failed in /home/me")
        return self._translate(texts, prefixes=prefixes)


class Running(NamedTuple):
    """A server and what it translates with."""

    served: Served
    endpoint: TranslateEndpoint

    def translate(self, **request: Any) -> Answer:
        return self.post(json.dumps(request).encode())

    def post(self, body: bytes, **headers: str) -> Answer:
        return self.served.ask("POST", "/translate", body, **{"content_type": "application/json"} | headers)

    def wait_for_pending(self, number: int) -> None:
        """Wait until so many requests have been read and wait for the model, without those that it translates."""
        wait_until(lambda: len(self.endpoint._pending) == number)


@contextmanager
def serving(
    translate: translation_server.Translate,
    address: str = "127.0.0.1",
    graceful_seconds: int = 5,
    no_prefixes: str | None = None,
) -> Iterator[Running]:
    """Serve on a free port of 127.0.0.1, as on `address`, until the block ends."""
    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor(1) as worker:
        port = listener.getsockname()[1]
        endpoint = TranslateEndpoint(translate, worker, batch_sentences=8, most_hypotheses=2, no_prefixes=no_prefixes)
        with running(server_of(application(endpoint, address, port), graceful_seconds), listener):
            yield Running(Served(port), endpoint)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return translator_of(tmp_path_factory.mktemp("served"), "model=rnn")


@pytest.fixture
def gated(translator: Translator) -> Gated:
    return Gated(translator)


@pytest.fixture
def server(gated: Gated) -> Iterator[Running]:
    with serving(gated) as one:
        yield one
        gated.gate.set()


def alone(translator: Translator, text: str, prefix: str = "") -> list[dict[str, Any]]:
    """Return what is expected of the hypotheses of a text that is translated alone."""
    (best,) = translator.translate([text], search=BEAM, prefixes=[prefix])
    return [
        {"text": one.text, "log_prob": pytest.approx(one.log_prob), "score": pytest.approx(one.score)}
        for one in (best, *best.alternatives)
    ]


def answer_of(translator: Translator, text: str, prefix: str = "") -> dict[str, Any]:
    """Return what is expected of the answer to a text that is translated alone."""
    (best,) = translator.translate([text], search=BEAM, prefixes=[prefix])
    return alone(translator, text, prefix)[0] | {"notes": best.notes}


def test_texts_have_the_translations_of_the_translator(server: Running, translator: Translator) -> None:
    one, several = server.translate(text=SENTENCES[0]), server.translate(text=SENTENCES[:5])
    assert (one.status, one.headers["content-type"]) == (200, "application/json")
    assert one.json == {"translations": [answer_of(translator, SENTENCES[0])]}
    assert several.json == {"translations": [answer_of(translator, text) for text in SENTENCES[:5]]}
    assert len({answer["text"] for answer in several.json["translations"]}) > 3


def test_the_best_translations_are_those_of_the_search(server: Running, translator: Translator) -> None:
    for number in (1, 2):
        answered = server.translate(text=SENTENCES[:3], n_best=number).json["translations"]
        for text, answer in zip(SENTENCES, answered, strict=False):
            best = alone(translator, text)
            assert len(best) == 2
            assert answer == answer_of(translator, text) | {"n_best": best[:number]}
    refused = server.translate(text="a", n_best=3)
    assert refused.status == 400
    assert refused.json["error"].startswith("n_best=3 must be at most 2, the number that the search of this server fin")


def test_nothing_is_translated_to_nothing(server: Running, gated: Gated) -> None:
    assert (server.translate(text=[]).json, gated.batches) == ({"translations": []}, [])
    empty = {"text": "", "log_prob": 0.0, "score": 0.0, "notes": []}
    assert server.translate(text="").json == {"translations": [empty]}
    assert server.translate(text=["", " \n"]).json == {"translations": [empty, empty]}


def test_what_is_changed_in_a_text_is_noted(translator: Translator) -> None:
    cut = partial(translator.translate, search=choose_search(BEAM, {}), max_source_tokens=3)
    with serving(lambda texts, prefixes: cut(texts, prefixes=prefixes)) as server:
        long, hostile = server.translate(text=[SENTENCES[8], "a\x00\ud800"]).json["translations"]
    (note,) = of_text(long["notes"])
    assert note.endswith(" to 3 tokens, the most that max_source_tokens allows")
    assert hostile["notes"][:2] == [
        "control characters are replaced by blanks", "not Unicode; what cannot be read is replaced",
    ]  # fmt: skip


def test_an_answer_is_plain_utf_8() -> None:
    texts = ["Où ?", "\u2028\x1b[31m", "\ud800"]  # of which only the first is a model's
    translations = [Translation(text, -1.5, -1.0, [], [], [], []) for text in texts]
    body = translation_server.answer_body(translations, None)
    assert '"text": "Où ?"'.encode() in body
    assert b"\x1b" not in body
    assert [answer["text"] for answer in json.loads(body)["translations"]] == texts


def test_a_client_that_does_not_read_its_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_server, "SEND_SECONDS", 0.05)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        await asyncio.sleep(60 * (message["type"] == "http.response.body"))

    async def receive() -> Any:
        await asyncio.sleep(60)

    request = Request({"type": "http", "asgi": {"spec_version": "2.4"}}, receive)
    with pytest.raises(TimeoutError):
        asyncio.run(json_server.send_body(200, b"12", request, send))
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


@pytest.mark.slow
def test_a_connection_whose_request_does_not_begin_is_closed_and_one_that_is_answered_is_not(
    server: Running, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.3)
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.served.port
    for first, begun in ((b"", b""), (b"", whole[:20]), (whole, whole[:20])):
        with socket.create_connection(("127.0.0.1", server.served.port), 20) as client:
            client.sendall(first)
            answered = client.recv(1 << 16) if first else b""
            assert answered.count(b"HTTP/1.1 200 OK") == first.count(whole)
            client.sendall(begun)
            while client.recv(1 << 16):  # the rest of the answer, and nothing once it is closed
                pass
    gated.gate.clear()
    with ThreadPoolExecutor(1) as worker:
        answer = worker.submit(server.translate, text=SENTENCES[0])
        time.sleep(1)
        gated.gate.set()
        assert answer.result().status == 200


def test_a_connection_stays_open_for_longer_than_clients_keep_one() -> None:
    assert server_of(lambda *_: None).config.timeout_keep_alive > 60


def send_forever(client: socket.socket, sent: bytes) -> None:
    while True:
        client.sendall(sent)


@pytest.mark.slow
def test_a_connection_whose_answers_are_not_read_is_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "READ_SECONDS", 0.3)
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.served.port
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        client.settimeout(20)
        client.connect(("127.0.0.1", server.served.port))
        with pytest.raises(ConnectionError):
            send_forever(client, whole * 100)
    assert server.translate(text=SENTENCES[0]).status == 200


@pytest.mark.parametrize("is_read", [False, True])
def test_what_is_left_of_an_answer_is_waited_for_until_it_is_read(
    is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a connection that is closed, and where so little is left that asyncio alone would not pause writing."""
    monkeypatch.setattr(http_connection, "READ_SECONDS", 0.3)
    config = Config(lambda: None, ws="none", log_config=None)
    config.load()

    async def ends() -> bool:
        near, far = socket.socketpair()
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        with far:
            connection = http_connection.HTTPConnection(config, ServerState(), {})
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: connection, sock=near)
            while not transport.get_write_buffer_size():
                transport.write(b"x" * 1024)
            if is_read:
                far.recv(1 << 20)
            else:
                transport.close()
            await asyncio.sleep(0.6)
            ended = connection not in connection.connections
            transport.abort()
            return ended

    assert asyncio.run(ends()) is not is_read


def test_connections_beyond_the_most_are_closed_at_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "MOST_CONNECTIONS", 2)
    address = ("127.0.0.1", server.served.port)
    with socket.create_connection(address, 20), socket.create_connection(address, 20) as second:
        with socket.create_connection(address, 20) as third:
            assert third.recv(1) == b""
        second.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.served.port)
        assert second.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(("files", "most"), [(256, 128), (resource.RLIM_INFINITY, 512), (4096, 512)])
def test_connections_leave_files_to_the_process(files: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert http_connection.most_connections() == most


def test_requests_that_wait_are_one_batch_and_have_the_translations_that_they_have_alone(
    server: Running, gated: Gated, translator: Translator
) -> None:
    ends = [1, 4, 9, 18, 20]
    asked = [SENTENCES[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    gated.gate.clear()
    with ThreadPoolExecutor(len(asked)) as clients:
        answers = []
        for number, texts in enumerate(asked):
            answers.append(clients.submit(server.translate, text=texts))
            wait_until(lambda: gated.batches == asked[:1])
            server.wait_for_pending(number)
        gated.gate.set()
    first, second, third, longer, last = asked
    *most, longest = sorted(longer, key=len)  # what is over a batch does not hold up the last request
    assert gated.batches == [first, second + third, most, [*last, longest]]
    for texts, answer in zip(asked, answers, strict=True):
        expected = [answer_of(translator, text) for text in texts]
        assert answer.result().json == {"translations": expected}


def test_a_translation_begins_with_the_prefix_of_its_request(
    server: Running, gated: Gated, translator: Translator
) -> None:
    answer = server.translate(text=SENTENCES[0], prefix="my old").json["translations"]
    assert answer == [answer_of(translator, SENTENCES[0], "my old")]
    assert answer[0]["text"].startswith("my old")
    asked = [(SENTENCES[1:3], None), (SENTENCES[3:5], ["where is", ""]), (SENTENCES[5:6], None)]
    gated.gate.clear()
    with ThreadPoolExecutor(4) as clients:
        first = clients.submit(server.translate, text="first")
        wait_until(lambda: gated.batches[1:] == [["first"]])
        answers = []
        for number, (texts, prefix) in enumerate(asked, 1):
            answers.append(clients.submit(server.translate, text=texts, prefix=prefix))
            server.wait_for_pending(number)
        gated.gate.set()
        assert first.result().status == 200
    assert gated.prefixes == [["my old"], None, ["", "", "where is", "", ""]]
    for (texts, prefixes), answered in zip(asked, answers, strict=True):
        given = zip(texts, prefixes or [""] * len(texts), strict=True)
        expected = [answer_of(translator, *one) for one in given]
        assert answered.result().json == {"translations": expected}


def test_an_engine_without_prefixes_refuses_the_request_that_has_one_alone(gated: Gated) -> None:
    with serving(gated, no_prefixes=CONTINUES) as server:
        free, begun = server.translate(text="a", prefix=""), server.translate(text="a", prefix="b")
    assert (free.status, begun.status, begun.json) == (200, 400, {"error": CONTINUES})
    assert (gated.batches, gated.prefixes) == ([["a"]], [None])


def test_many_clients_at_once_have_each_its_own_translation(
    server: Running, gated: Gated, translator: Translator
) -> None:
    texts = SENTENCES[:24]
    with ThreadPoolExecutor(12) as clients:
        answers = list(clients.map(lambda text: server.translate(text=text), texts))
    for text, answer in zip(texts, answers, strict=True):
        assert answer.json["translations"] == [answer_of(translator, text)]
    assert sorted(text for batch in gated.batches for text in batch) == sorted(texts)


def test_a_request_that_fails_fails_alone_and_the_terminal_says_why(
    server: Running, gated: Gated, capfd: pytest.CaptureFixture[str]
) -> None:
    gated.gate.clear()
    with ThreadPoolExecutor(4) as clients:
        answers = []
        for number, text in enumerate((SENTENCES[0], "broken", SENTENCES[1], "overflow")):
            answers.append(clients.submit(server.translate, text=text))
            wait_until(lambda: gated.batches)
            server.wait_for_pending(number)
        gated.gate.set()
    first, broken, second, overflow = (answer.result() for answer in answers)
    assert (first.status, second.status) == (200, 200)
    assert (broken.status, overflow.status) == (500, 500)
    assert broken.json == {"error": "The translation failed (RuntimeError); the server printed why"}
    assert overflow.json == {"error": "the model's numbers overflow"}
    assert capfd.readouterr().err.count("RuntimeError: the search failed in /home/me") == 1


def test_the_request_of_a_client_that_has_left_is_not_translated(server: Running, gated: Gated) -> None:
    gated.gate.clear()
    body = b'{"text": "left"}'
    head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{server.served.port}\r\nContent-Type: application/json\r\n"
    with ThreadPoolExecutor(2) as clients:
        first = clients.submit(server.translate, text="first")
        wait_until(lambda: gated.batches == [["first"]])
        with socket.create_connection(("127.0.0.1", server.served.port), 20) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            server.wait_for_pending(1)
        last = clients.submit(server.translate, text="last")
        server.wait_for_pending(2)
        gated.gate.set()
        assert (first.result().status, last.result().status) == (200, 200)
    assert gated.batches == [["first"], ["last"]]


def test_the_rest_of_a_long_request_is_not_translated_once_its_client_has_left(server: Running, gated: Gated) -> None:
    gated.gate.clear()
    body = json.dumps({"text": SENTENCES[:9]}).encode()
    head = f"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:{server.served.port}\r\nContent-Type: application/json\r\n"
    with ThreadPoolExecutor(1) as clients:
        with socket.create_connection(("127.0.0.1", server.served.port), 20) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: gated.batches)
        last = clients.submit(server.translate, text="last")
        server.wait_for_pending(1)
        gated.gate.set()
        assert last.result().status == 200
    assert [len(batch) for batch in gated.batches] == [8, 1]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"{", "The request is not JSON: "),
        (b"", "The request is not JSON: "),
        (b"[" * 10_000, "The request is not JSON: "),
        (b"[]", "The request is not a JSON object"),
        (b"{}", "text=null must be a text or a list of texts"),
        (b'{"text": 3}', "text=3 must be a text or a list of texts"),
        (b'{"text": {"a": 1}}', "text=an object must be a text or a list of texts"),
        (b'{"text": ["a", null]}', "text holds null, and must be a text or a list of texts"),
        (b'{"text": ["a", ["b"]]}', "text holds a list, and must be a text or a list of texts"),
        (b'{"text": [%s]}' % b", ".join([b'""'] * 1_001), "text has 1,001 entries, and 1,000 are the most; shorten it"),
        (b'{"q": "a", "text": "b"}', "a request has no 'q'; it takes: text, n_best, prefix"),
        (b'{"text": "a", "prefix": 3}', "prefix=3 must be a text or a list of texts"),
        (b'{"text": "a", "prefix": [null]}', "prefix holds null, and must be a text or a list of texts"),
        (b'{"text": ["a", "b"], "prefix": "c"}', "there are 2 texts and 1 prefixes; give one for each, or none"),
        (b'{"text": "a", "n_best": 0}', "n_best is 0, and must be a whole number from 1 to "),
        (b'{"text": "a", "n_best": true}', "n_best is true, and must be a whole number from 1 to "),
        (b'{"text": "a", "n_best": 1.0}', "n_best is 1.0, and must be a whole number from 1 to "),
        (b'{"text": "a", "n_best": %s}' % (b"9" * 4_000), "n_best=a number of many digits must be at most 2, the "),
    ],
    ids=range(18),
)
def test_bad_input_is_one_sentence(server: Running, gated: Gated, body: bytes, sentence: str) -> None:
    answer = server.post(body)
    assert (answer.status, list(answer.json)) == (400, ["error"])
    assert answer.json["error"].startswith(sentence)
    assert answer.json["error"].isprintable()
    assert gated.batches == []


def test_a_request_that_is_too_long_or_no_json_is_refused(
    server: Running, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation_server, "MOST_BYTES", 100)
    assert server.translate(text="a" * 20).status == 200
    long = server.translate(text="a" * 200)
    assert (long.status, long.json) == (413, {"error": "The request is longer than 100 bytes; give a shorter text"})
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):  # as a form of a page sends it
        assert server.post(b'{"text": "a"}', content_type=kind).status == 415
    assert gated.batches == [["a" * 20]]


def test_more_requests_than_may_wait_are_refused_and_health_counts_them(
    server: Running, gated: Gated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def health() -> Any:
        return server.served.ask("GET", "/health").json

    assert health() == {"status": "ok", "waiting": 0}
    monkeypatch.setattr(translation_server, "MOST_WAITING", 3)
    gated.gate.clear()
    with ThreadPoolExecutor(8) as clients:
        answers = [clients.submit(server.translate, text=f"text {n}") for n in range(8)]
        wait_until(lambda: sum(answer.done() for answer in answers) == 5)
        assert health() == {"status": "ok", "waiting": 3}
        gated.gate.set()
    statuses = [answer.result().status for answer in answers]
    assert sorted(statuses) == [200] * 3 + [503] * 5
    assert server.translate(text="later").status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"},
        {"Host": "127.0.0.1:1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_page_of_another_site_is_refused(server: Running, gated: Gated, headers: dict[str, str]) -> None:
    port = server.served.port
    given = {name: value.format(port=port) for name, value in headers.items()}
    for answer in (server.post(b'{"text": "a"}', **given), server.served.ask("GET", "/health", **given)):
        assert answer.status == 403
        assert answer.json["error"].startswith(ALONE.format(port=port))
        assert "access-control-allow-origin" not in answer.headers
    assert gated.batches == []


def test_on_every_network_any_host_is_answered_and_no_page(gated: Gated) -> None:
    with serving(gated, address="0.0.0.0") as server:
        for host in ("translate.example", f"192.0.2.7:{server.served.port}"):
            assert server.post(b'{"text": "a"}', Host=host).status == 200
            refused = server.post(b'{"text": "a"}', Host=host, Origin=f"http://{host}")
            assert (refused.status, refused.json["error"][:44]) == (403, "The server answers programs, not pages in a ")


def test_every_answer_confines_a_browser_and_another_path_or_method_is_named(server: Running) -> None:
    found, health = server.served.ask("GET", "/translate"), server.served.ask("GET", "/health")
    assert server.served.ask("POST", "/translate/", b"{}", content_type="application/json").status == 404
    missing = server.served.ask("GET", "/")
    assert (found.status, found.headers["allow"], missing.status) == (405, "POST", 404)
    assert found.json == missing.json == {"error": "The server answers POST /translate and GET /health"}
    for answer in (found, missing, health):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; ")
        assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")


def test_a_request_that_waits_when_the_server_ends_is_answered(gated: Gated) -> None:
    gated.gate.clear()
    with ThreadPoolExecutor(1) as clients:
        with serving(gated) as server:
            answer = clients.submit(server.translate, text="last")
            wait_until(lambda: gated.batches)
            opening = threading.Timer(0.3, gated.gate.set)
            opening.start()
        assert answer.result().status == 200
    opening.join()


def test_a_request_that_waits_too_long_when_the_server_ends_is_refused(gated: Gated) -> None:
    gated.gate.clear()
    with ThreadPoolExecutor(2) as clients:
        with serving(gated, graceful_seconds=0) as server:
            answers = [clients.submit(server.translate, text="first")]
            wait_until(lambda: gated.batches)
            answers.append(clients.submit(server.translate, text="second"))
            server.wait_for_pending(1)
            answers[0].add_done_callback(lambda _: gated.gate.set())
        for answer in answers:
            assert answer.result().status == 503
            assert answer.result().json == {"error": "The server ends; ask again when it runs"}
