"""The REST API of a Conductor server: JSON in, JSON out, typed errors.

Of the official SDK only its HTTP client is used, for its connections and its tokens (decision 0014).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlsplit

from fenceline.errors import ConfigError, ContractError, NotFound

URL_ENV = "CONDUCTOR_SERVER_URL"
KEY_ENV = "CONDUCTOR_AUTH_KEY"
SECRET_ENV = "CONDUCTOR_AUTH_SECRET"  # noqa: S105 - the name of a variable
DEFAULT_URL = "http://localhost:8080/api"
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0

_SERVER_AT_FAULT = 500
_TOO_MANY = 429


class ConductorUnavailable(ConfigError):
    """The server cannot be reached, or failed itself; the same call may work later."""

    code = "config.conductor.unavailable"
    retryable = True


class ConductorDenied(ConfigError):
    """The server wants a key and secret, or others."""

    code = "config.conductor.denied"


class ConductorRefused(ContractError):
    """The server understood the call and will not do it."""

    code = "contract.conductor"


def api_url(given: str | None = None) -> str:
    """The server's address with its `/api`: as given, by `CONDUCTOR_SERVER_URL`, or on this machine."""
    url = (given or os.environ.get(URL_ENV) or DEFAULT_URL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ContractError(f"{url!r} is not the address of a server", hint="write http://HOST:8080/api")
    return url if parts.path else f"{url}/api"


@dataclass(frozen=True, slots=True)
class ConductorApi:
    """Calls to one server. Safe to use from many threads; not to be carried into another process."""

    url: str
    _client: Any
    """The SDK's `ApiClient`."""
    _failed: type[Exception]
    """The one exception it raises, whatever happened."""

    @classmethod
    def at(cls, url: str | None = None) -> ConductorApi:
        """The server at an address (see `api_url`), with key and secret from the environment where it wants them."""
        address = api_url(url)
        try:
            from conductor.client.configuration.configuration import Configuration
            from conductor.client.http.api_client import ApiClient
            from conductor.client.http.rest import ApiException
        except ImportError as error:
            raise ConfigError(
                f"the Conductor client is not installed: {error}", hint="pip install 'fenceline[conductor]'"
            ) from error
        return cls(address, ApiClient(Configuration(server_api_url=address)), ApiException)

    def get(self, path: str, query: Mapping[str, Any] | None = None, seconds: float = ANSWER_SECONDS) -> Any:
        return self._call("GET", path, query, None, seconds)

    def post(self, path: str, body: Any = None, query: Mapping[str, Any] | None = None) -> Any:
        return self._call("POST", path, query, body, ANSWER_SECONDS)

    def put(self, path: str, body: Any = None) -> Any:
        return self._call("PUT", path, None, body, ANSWER_SECONDS)

    def delete(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return self._call("DELETE", path, query, None, ANSWER_SECONDS)

    def close(self) -> None:
        self._client.rest_client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, seconds: float) -> Any:
        try:
            return self._send(method, path, query, body, seconds)
        except self._failed as error:
            # The SDK renews a token that has run out, but not one that it could not get when it started.
            if getattr(error, "status", None) == 401 and self._client.force_refresh_auth_token():
                try:
                    return self._send(method, path, query, body, seconds)
                except self._failed as again:
                    raise self._typed(again, method, path) from again
            raise self._typed(error, method, path) from error

    def _send(self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, seconds: float) -> Any:
        return self._client.call_api(
            path,
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": "*/*"},
            body=body,
            response_type="object",
            _return_http_data_only=True,
            _request_timeout=(CONNECT_SECONDS, seconds),
        )

    def _typed(self, error: Exception, method: str, path: str) -> ConfigError | ContractError:
        status = int(getattr(error, "status", 0) or 0)
        told = str(getattr(error, "message", None) or getattr(error, "reason", None) or error).strip()
        what = f"{method} {path}"
        if status == 0:
            return ConductorUnavailable(
                f"the Conductor server at {self.url} cannot be reached: {told}",
                hint=f"start it, or correct the address: --server or {URL_ENV}",
            )
        if status in (401, 403):
            return ConductorDenied(
                f"the Conductor server at {self.url} denies {what} ({status}): {told}",
                hint=f"set {KEY_ENV} and {SECRET_ENV} to an application's key and secret that may do this",
            )
        if status >= _SERVER_AT_FAULT or status == _TOO_MANY:
            return ConductorUnavailable(
                f"the Conductor server at {self.url} failed at {what} ({status}): {told}",
                hint="its log says why; the same call may work later",
            )
        if status == 404:
            return NotFound(f"the Conductor server at {self.url} says: {told}", hint="check the name or id")
        return ConductorRefused(
            f"the Conductor server at {self.url} refuses {what} ({status}): {_details(error, told)}",
            hint="correct what was sent",
        )


def segment(text: str) -> str:
    """A name or id as one part of a path."""
    return quote(text, safe="")


def _details(error: Exception, told: str) -> str:
    """Validation errors stand in the body, beside the message."""
    body = str(getattr(error, "body", "") or "")
    return body if "validationErrors" in body else told
