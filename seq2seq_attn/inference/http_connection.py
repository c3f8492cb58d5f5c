"""Connections of clients to a server: bounded in number, and closed where no request arrives."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, final

from uvicorn.protocols.http.h11_impl import H11Protocol

READ_SECONDS = 60  # after which a connection is cut off whose client has not read what was sent
HEAD_SECONDS = 10  # after which a connection is closed if the head of its request has not arrived
MOST_CONNECTIONS = 512  # at once; a process may have 1,024 files on most systems


@final
class HTTPConnection(H11Protocol):
    """A connection of uvicorn's, which by itself waits forever: for a first request, for the rest of its head, and for
    a client to read an answer, even after it has been closed.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # so that writing is paused while anything is unread
        if len(self.connections) > most_connections():
            transport.close()
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()
        self._is_read()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_read()

    def _is_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _watch(self) -> None:
        """Time the head of the next request from its first byte, and that of the first from the connection."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_watching()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def most_connections() -> int:
    """Return how many connections the process may have, which leaves it half of its files.

    As many as the backlog are accepted before the first of them can be closed.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
