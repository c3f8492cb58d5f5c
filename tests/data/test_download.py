"""Downloads from a local server that answers, breaks off, stalls or has no such file."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from seq2seq_attn.data import download
from seq2seq_attn.data.download import fetch
from seq2seq_attn.errors import UserError

CONTENT = bytes(range(256)) * 400


class Handler(BaseHTTPRequestHandler):
    """A server: `/good` is complete, `/cut` and `/no_ranges` break off once, `/always_cut` always, `/slow` stalls."""

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["User-Agent"], self.headers["Range"]))
        tries = sum(path == self.path for path, *_ in self.server.seen)
        start = int(self.headers["Range"][6:-1]) if self.headers["Range"] and self.path != "/no_ranges" else 0
        body = CONTENT[start:]
        if self.path not in ("/good", "/cut", "/no_ranges", "/always_cut", "/slow"):
            self.send_error(404)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/always_cut":
            body = body[:100]
        elif self.path in ("/cut", "/no_ranges") and tries == 1:
            body = body[: len(body) // 2]
        elif self.path == "/slow":
            self.server.released.wait(10)
            return
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.seen, running.released, running.daemon_threads = [], threading.Event(), True
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.released.set()
        running.shutdown()
        thread.join()


def url(server: ThreadingHTTPServer, path: str) -> str:
    return f"http://127.0.0.1:{server.server_port}/{path}"


def get(server: ThreadingHTTPServer, path: str, file: Path) -> Path:
    return fetch(url(server, path), file, "data.path=FILE", pause_seconds=0.0, timeout_seconds=0.5)


def refused(server: ThreadingHTTPServer, path: str, file: Path) -> str:
    with pytest.raises(UserError) as error:
        get(server, path, file)
    return str(error.value)


def test_a_file_is_downloaded_once_with_our_user_agent(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    file = tmp_path / "new" / "file"
    assert get(server, "good", file).read_bytes() == CONTENT
    get(server, "good", file)
    ((_, agent, _),) = server.seen
    assert agent == "seq2seq-attn"
    assert {path.name for path in file.parent.iterdir()} == {file.name, f"{file.name}.lock"}


def test_two_that_need_a_file_download_it_once(
    server: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete, begun = download.complete, threading.Event()

    def slow(url: str, part: Path, timeout_seconds: float) -> None:
        begun.set()
        time.sleep(0.5)
        complete(url, part, timeout_seconds)

    monkeypatch.setattr(download, "complete", slow)
    files: list[Path] = []
    others = [threading.Thread(target=lambda: files.append(get(server, "good", tmp_path / "file"))) for _ in range(2)]
    for thread in others:
        thread.start()
        begun.wait(10)
    for thread in others:
        thread.join(20)
    assert files == [tmp_path / "file"] * 2
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(server.seen) == 1


def test_a_download_cut_short_is_continued_where_it_stopped(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    assert get(server, "cut", tmp_path / "file").read_bytes() == CONTENT
    assert [asked for *_, asked in server.seen] == [None, f"bytes={len(CONTENT) // 2}-"]


def test_a_server_that_cannot_continue_begins_again(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    assert get(server, "no_ranges", tmp_path / "file").read_bytes() == CONTENT


def test_a_download_that_is_always_cut_is_one_sentence_and_keeps_its_part(
    server: ThreadingHTTPServer, tmp_path: Path
) -> None:
    message = refused(server, "always_cut", tmp_path / "file")
    missing = len(CONTENT) - 100 * download.ATTEMPTS
    assert message == (
        f"cannot download {url(server, 'always_cut')} (IncompleteRead(0 bytes read, {missing} more expected)); "
        "download it by other means and set data.path=FILE"
    )
    assert {path.name for path in tmp_path.iterdir()} == {"file.part", "file.lock"}


def test_a_missing_file_is_one_sentence_after_one_attempt(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    message = refused(server, "nothing", tmp_path / "file")
    assert message == (
        f"cannot download {url(server, 'nothing')} (HTTP 404 Not Found); download it by other means and set "
        "data.path=FILE"
    )
    assert len(server.seen) == 1


@pytest.mark.slow
def test_a_server_that_sends_nothing_times_out(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    message = refused(server, "slow", tmp_path / "file")
    assert message == (
        f"cannot download {url(server, 'slow')} (timed out); download it by other means and set data.path=FILE"
    )


def test_without_a_network_it_says_what_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^cannot download http://127\.0\.0\.1:9/x \(.*refused.*\); download it by other"
    ):
        fetch("http://127.0.0.1:9/x", tmp_path / "file", "data.path=FILE", pause_seconds=0.0)


def test_a_full_cache_folder_is_one_sentence(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    (tmp_path / "file.part").symlink_to("/dev/full")
    assert refused(server, "good", tmp_path / "file") == (
        f"cannot write file to the cache folder {tmp_path} (No space left on device); make room, or set "
        "paths.cache_dir to another folder"
    )
