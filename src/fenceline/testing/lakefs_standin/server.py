"""The stand-in as an HTTP server on loopback, with faults on schedule and a list of the calls it got."""

from __future__ import annotations

import base64
import binascii
import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from fenceline.repo.lakefs.sdk import Access
from fenceline.testing.lakefs_standin.answers import Answer, Request, as_json
from fenceline.testing.lakefs_standin.routes import Routes
from fenceline.testing.lakefs_standin.state import Refusal

BASE = "/api/v1"
KEY, SECRET = "stand-in", "not-secret"

Action = Literal["fail", "lose_answer", "hang", "hang_inside"]


@dataclass(frozen=True, slots=True)
class CallFault:
    """What goes wrong at the `nth` call of an operation, counted from 1 since it was injected.

    `fail`: nothing happens, the answer is 500. `lose_answer`: it happens, and the connection breaks. `hang`: it waits
    before it happens, until `release()`. `hang_inside`: a merge that has decided waits before the branch moves.
    """

    operation: str
    nth: int
    action: Action


class StandIn:
    """A lakeFS server for tests; everything it keeps is in memory."""

    def __init__(self, now: Callable[[], float], protection_delay: float, hooks: bool) -> None:
        self._routes = Routes(now, protection_delay, hooks, KEY)
        self._lock = threading.Lock()
        self._faults: list[tuple[CallFault, list[int]]] = []
        self._released = threading.Event()
        self.hanging = threading.Event()
        self.calls: list[str] = []
        """The operations in the order they arrived; their names are those of `Routes`."""
        self._server = _Server(self)
        host, port = self._server.server_address[:2]
        self.endpoint = f"http://{host!s}:{port}"

    @property
    def access(self) -> Access:
        return Access(self.endpoint, KEY, SECRET)

    def inject(self, *faults: CallFault) -> None:
        with self._lock:
            self._faults += [(fault, [0]) for fault in faults]

    def release(self) -> None:
        """Let every hanging call go on."""
        self._released.set()

    def handle(self, method: str, path: str, request: Request) -> Answer | None:
        """The answer; None if the connection must break instead."""
        try:
            operation, call = self._routes.find(method, path)
            action = self._due(operation)
            if action == "fail":
                return as_json(500, {"message": f"injected: {operation} failed"})
            if action == "hang":
                self._hang()
            answer = call(replace(request, pause=self._hang) if action == "hang_inside" else request)
        except Refusal as refusal:
            return as_json(refusal.status, {"message": refusal.message})
        return None if action == "lose_answer" else answer

    def _hang(self) -> None:
        self.hanging.set()
        self._released.wait()

    def _due(self, operation: str) -> Action | None:
        due: Action | None = None
        with self._lock:
            self.calls.append(operation)
            for fault, count in self._faults:
                if fault.operation == operation:
                    count[0] += 1
                    if count[0] == fault.nth:
                        due = fault.action
        return due

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="lakefs-stand-in", daemon=True).start()

    def stop(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._server.break_connections()


@contextmanager
def lakefs_standin(
    now: Callable[[], float] = time.time, protection_delay: float = 0.3, hooks: bool = True
) -> Iterator[StandIn]:
    """A running stand-in; `protection_delay` is how long a changed branch protection is not kept yet.

    With `hooks=False` it is a server whose actions are switched off: it runs no hook, whatever the commit holds.
    """
    standin = StandIn(now, protection_delay, hooks)
    standin.start()
    try:
        yield standin
    finally:
        standin.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 128

    def __init__(self, standin: StandIn) -> None:
        self.standin = standin
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        self.break_connections()  # clients keep them open, and their threads are waited for
        super().server_close()

    def break_connections(self) -> None:
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, as killed ones do, is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: socketserver.BaseServer

    def _do(self) -> None:
        assert isinstance(self.server, _Server)
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(dict(parse_qsl(url.query, keep_blank_values=True)), headers, body)
        if not _known(headers.get("authorization", "")):
            answer: Answer | None = as_json(401, {"message": "error authenticating request"})
        else:
            answer = self.server.standin.handle(self.command, unquote(url.path.removeprefix(BASE)), request)
        if answer is None:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status != 204:
            self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = _do  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Tests read `calls` instead."""


def _known(authorization: str) -> bool:
    try:
        return base64.b64decode(authorization.removeprefix("Basic ")).decode() == f"{KEY}:{SECRET}"
    except (binascii.Error, UnicodeDecodeError):
        return False
