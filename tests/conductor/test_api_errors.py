"""What the client makes of the server's answers; against a stub, because a real one cannot be made to fail so."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fenceline.errors import ContractError, NotFound
from fenceline.pipeline.conductor.api import (
    KEY_ENV,
    SECRET_ENV,
    URL_ENV,
    ConductorApi,
    ConductorDenied,
    ConductorRefused,
    ConductorUnavailable,
    api_url,
)

Answer = Callable[[str, str | None], tuple[int, Any]]


@pytest.fixture
def stub() -> Iterator[Callable[[Answer], str]]:
    """A server whose answers a test writes, as a function of path and token."""
    servers: list[ThreadingHTTPServer] = []

    def serve(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                status, body = answer(self.path, self.headers.get("X-Authorization"))
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET  # noqa: N815 - the name is the base class's

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                return None

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/api"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "says"),
    [
        (400, ConductorRefused, "refuses"),
        (401, ConductorDenied, KEY_ENV),
        (403, ConductorDenied, SECRET_ENV),
        (404, NotFound, "nothing there"),
        (409, ConductorRefused, "refuses"),
        (429, ConductorUnavailable, "may work later"),
        (500, ConductorUnavailable, "its log"),
        (503, ConductorUnavailable, "failed at GET /tasks/x"),
    ],
)
def test_every_answer_has_a_typed_error_with_a_hint(
    stub: Callable[[Answer], str], status: int, kind: type[Exception], says: str
) -> None:
    with (
        ConductorApi.at(stub(lambda path, token: (status, {"message": "nothing there"}))) as api,
        pytest.raises(kind, match=says) as caught,
    ):
        api.get("/tasks/x")
    assert "nothing there" in str(caught.value)


def test_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with ConductorApi.at("http://127.0.0.1:9/api") as api, pytest.raises(ConductorUnavailable, match=URL_ENV) as caught:
        api.get("/tasks/x")
    assert caught.value.retryable


def test_key_and_secret_come_from_the_environment_and_tokens_are_renewed(
    stub: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_ENV, "key")
    monkeypatch.setenv(SECRET_ENV, "secret")
    given: list[str] = []

    def answer(path: str, token: str | None) -> tuple[int, Any]:
        if path == "/api/token":
            given.append(f"token-{len(given)}")
            return 200, {"token": given[-1]}
        return (200, {"status": "fine"}) if token == "token-1" else (401, {"message": "who are you?"})

    with ConductorApi.at(stub(answer)) as api:
        assert api.get("/tasks/x") == {"status": "fine"}
        assert api.get("/tasks/x") == {"status": "fine"}
    assert given == ["token-0", "token-1"]


def test_wrong_keys_are_denied(stub: Callable[[Answer], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, "key")
    monkeypatch.setenv(SECRET_ENV, "wrong")
    with ConductorApi.at(stub(lambda path, token: (401, {"message": "no"}))) as api, pytest.raises(ConductorDenied):
        api.get("/tasks/x")


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://host:8080", "http://host:8080/api"),
        ("http://host:8080/", "http://host:8080/api"),
        ("https://host/conductor/api/", "https://host/conductor/api"),
        (None, "http://localhost:8080/api"),
    ],
)
def test_addresses(given: str | None, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_ENV, raising=False)
    assert api_url(given) == url


@pytest.mark.parametrize("given", ["host:8080", "ftp://host", "http://"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ContractError, match="not the address"):
        api_url(given)
