"""A stand-in for W&B's server: it takes runs and their history, and answers what wandb 0.31 asks of it."""

from __future__ import annotations

import gzip
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {"id": "any", "name": "any", "entity": {"id": "any", "name": "any"}}


class Stub(ThreadingHTTPServer):
    """Attributes: history: lines by the run's id. asked: paths."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.history: dict[str, list[dict[str, Any]]] = {}
        self.asked: set[str] = set()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, question: str, given: dict[str, Any]) -> dict[str, Any]:
        """To a GraphQL query, by its name; there is nothing to say to those that are not named here."""
        if question == "UpsertBucket":
            new = given["name"] not in self.history
            self.history.setdefault(given["name"], [])
            return {"upsertBucket": {"bucket": bucket(given["name"], []), "inserted": new}}
        if question == "RunResumeStatus":
            lines = self.history.get(given["name"])
            return {"model": PROJECT | {"bucket": None if lines is None else bucket(given["name"], lines)}}
        if question == "CreateRunFiles":
            files = [{"name": name, "uploadUrl": f"{self.address}/sent/{name}"} for name in given["files"]]
            return {"createRunFiles": {"runID": "any", "uploadHeaders": [], "files": files}}
        return {}


def bucket(run: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What the server knows of a run."""
    tail = [json.dumps(lines[-1])] if lines else []
    return {
        "id": "any",
        "name": run,
        "displayName": "any",
        "description": "",
        "sweepName": None,
        "project": PROJECT,
        "config": "{}",
        "wandbConfig": '{"t": 1}',
        "tags": [],
        "summaryMetrics": "{}",
        "logLineCount": 0,
        "eventsLineCount": 0,
        "eventsTail": "[]",
        "historyLineCount": len(lines),
        "historyTail": json.dumps(tail),
    }


class Answer(BaseHTTPRequestHandler):
    """A request's."""

    server: Stub

    def do_GET(self) -> None:
        self._send({})

    def do_PUT(self) -> None:
        self._read()
        self._send({})

    def do_POST(self) -> None:
        content = self._read()
        if self.path.endswith("/graphql"):
            query = json.loads(content)
            named = re.search(r"(?:query|mutation)\s+(\w+)", query["query"])
            self._send({"data": self.server.answer(named[1] if named else "", query["variables"])})
            return
        if self.path.endswith("/file_stream"):
            run = self.path.split("/")[-2]
            sent = (json.loads(content).get("files") or {}).get("wandb-history.jsonl")
            if sent:
                begin, lines = sent["offset"], [json.loads(line) for line in sent["content"]]
                self.server.history[run][begin : begin + len(lines)] = lines
        self._send({})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _read(self) -> bytes:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(content) if self.headers.get("Content-Encoding") == "gzip" else content

    def _send(self, answer: dict[str, Any]) -> None:
        self.server.asked.add(self.path)
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
