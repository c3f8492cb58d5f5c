"""Download of a public corpus into the cache: once, atomic, resumable, with a progress bar."""

from __future__ import annotations

import errno
import http.client
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from seq2seq_attn.errors import UserError
from seq2seq_attn.files import locked

ATTEMPTS = 4
TIMEOUT_SECONDS = 20.0  # without receiving a byte
PAUSE_SECONDS = 1.0  # before the second attempt; doubled before each further one
BLOCK = 1 << 16


def fetch(
    url: str,
    file: Path,
    instead: str,
    *,
    pause_seconds: float = PAUSE_SECONDS,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Path:
    """Return `file`, downloaded from `url` if it does not exist; resume from the part that a failed attempt left.

    Args:
        instead: the override that replaces the download, for the error message.

    Raises:
        UserError: if the server cannot be reached, has no such file or keeps breaking off, or the cache folder
            cannot be written.
    """
    if file.exists():
        return file
    with locked(file.with_name(file.name + ".lock")):  # another process may need the same file
        return file if file.exists() else download_missing(url, file, instead, pause_seconds, timeout_seconds)


def download_missing(url: str, file: Path, instead: str, pause_seconds: float, timeout_seconds: float) -> Path:
    part = file.with_name(file.name + ".part")
    reason = ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(pause_seconds * 2 ** (attempt - 1))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            complete(url, part, timeout_seconds)
            part.replace(file)
            return file
        except urllib.error.HTTPError as error:
            reason = f"HTTP {error.code} {error.reason}"
            if error.code == 416:  # the server's file has changed: it does not continue the part
                part.unlink(missing_ok=True)
            elif error.code < 500:
                break
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM):
                raise UserError(
                    f"cannot write {file.name} to the cache folder {file.parent} ({error.strerror}); make room, or set "
                    "paths.cache_dir to another folder"
                ) from error
            reason = str(error)
    raise UserError(f"cannot download {url} ({reason}); download it by other means and set {instead}")


def complete(url: str, part: Path, timeout_seconds: float) -> None:
    """Append to `part` until it has the length that the server announces."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "seq2seq-attn"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout_seconds) as response:
        continued = response.status == 206
        have = have if continued else 0
        announced = response.headers.get("Content-Length")
        total = None if announced is None else have + int(announced)
        with part.open("ab" if continued else "wb") as stream:
            have += copy(response, stream, total, have, part.name.removesuffix(".part"))
    if total is not None and have < total:
        raise http.client.IncompleteRead(b"", total - have)


def copy(response: http.client.HTTPResponse, stream: BinaryIO, total: int | None, done: int, name: str) -> int:
    """Write the response to `stream` under a progress bar; return the number of bytes written."""
    written = 0
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task(f"Downloading {name}", total=total, completed=done)
        while block := response.read1(BLOCK):
            stream.write(block)
            written += len(block)
            progress.advance(task, len(block))
    return written
