"""A proxy between a client and an S3 server that loses requests and answers when told to."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

Fate = Literal["pass", "lose_request", "lose_answer", "busy"]
Rule = Callable[[str, str], Fate]
"""What becomes of a request, by its method and path."""


class LossyProxy:
    """Its rule may be changed at any time; `seen` are the requests that came, in order."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self.rule: Rule = lambda method, path: "pass"
        self.seen: list[tuple[str, str]] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                proxy._handle(self)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[LossyProxy]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def once(self, method: str, ending: str, fate: Fate) -> None:
        """The next such request meets this fate; all others pass."""
        left = [1]

        def rule(asked: str, path: str) -> Fate:
            if left[0] and asked == method and path.endswith(ending):
                left[0] -= 1
                return fate
            return "pass"

        self.rule = rule

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("content-length", 0)))
        path = urlsplit(request.path).path
        self.seen.append((request.command, path))
        fate = self.rule(request.command, path)
        if fate == "lose_request":
            request.close_connection = True
            return
        if fate == "busy":
            request.send_response(503)
            request.send_header("content-length", "0")
            request.end_headers()
            return
        upstream = http.client.HTTPConnection(self._upstream.hostname or "", self._upstream.port or 80, timeout=30)
        try:
            upstream.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            content = answer.read()
        finally:
            upstream.close()
        if fate == "lose_answer":
            request.close_connection = True
            return
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                request.send_header(name, value)
        length = answer.getheader("content-length") if request.command == "HEAD" else str(len(content))
        request.send_header("content-length", length or "0")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)
