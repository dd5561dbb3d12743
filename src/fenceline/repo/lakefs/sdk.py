"""The official SDK, and the one place that imports it: calls with typed errors, and bytes as streams.

The SDK reads whole objects into memory; both streams here go over its own connection pool instead, as its writer does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, TypeVar
from urllib.parse import quote, urlencode

from fenceline.errors import ConfigError
from fenceline.repo.lakefs import errors

T = TypeVar("T")

CHUNK = 1 << 20
"""Large reads: at the default 16 KiB a loopback download is fifty times slower."""
CONNECTIONS = 32
CONNECT_SECONDS = 10.0
READ_RETRIES = 3
AUTH = ["basic_auth", "cookie_auth", "jwt_token"]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the server is and who asks. Left empty, what `lakectl` uses applies: its variables, or its file."""

    endpoint: str | None = None
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    timeout: float = 60.0


class Connection:
    """One server, one user; safe to share between threads."""

    def __init__(self, access: Access) -> None:
        self._timeout = (CONNECT_SECONDS, access.timeout)
        try:
            import lakefs.exceptions
            import lakefs_sdk.exceptions
            import urllib3
            from lakefs.client import Client as SdkClient
        except ImportError as error:
            raise errors.no_sdk() from error
        self.models: Any = lakefs_sdk
        self._failed: Any = lakefs_sdk.exceptions.ApiException
        self._http: Any = urllib3.exceptions
        self._urllib3: Any = urllib3
        given = {"host": access.endpoint, "username": access.key, "password": access.secret}
        connect: Any = SdkClient  # its constructor is not typed
        try:
            self._client: Any = connect(**{name: value for name, value in given.items() if value})
        except lakefs.exceptions.LakeFSException as error:
            raise ConfigError(
                "no lakeFS endpoint and keys found",
                hint="set LAKECTL_SERVER_ENDPOINT_URL, LAKECTL_CREDENTIALS_ACCESS_KEY_ID and "
                "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY, or run lakectl config",
            ) from error
        self._pool: Any = self._client.sdk_client._api.rest_client.pool_manager
        self._pool.connection_pool_kw.update(
            maxsize=CONNECTIONS,
            blocksize=CHUNK,
            retries=urllib3.Retry(
                READ_RETRIES,
                allowed_methods=("GET", "HEAD"),  # a write goes out once: what became of it is the caller's to settle
                status_forcelist=(429, 502, 503, 504),
                backoff_factor=0.2,
                raise_on_status=False,
            ),
        )

    @property
    def api(self) -> Any:
        """The SDK's groups of calls; asking for them renews a session that is about to run out."""
        return self._client.sdk_client

    @property
    def endpoint(self) -> str:
        return str(self._client.config.host).removesuffix("/api/v1")

    def keys(self) -> Access:
        config = self._client.config
        if not config.username or not config.password:
            raise ConfigError(
                "the S3 gateway of lakeFS needs an access key and its secret", hint="a session token is not enough"
            )
        return Access(self.endpoint, config.username, config.password)

    def close(self) -> None:
        self._pool.clear()

    def ask(self, doing: str, call: Callable[..., T], *args: object, **options: object) -> T:
        """A call that changes nothing."""
        with self._typed(doing, wrote=False):
            return call(*args, _request_timeout=self._timeout, **_given(options))

    def tell(
        self, doing: str, call: Callable[..., T], *args: object, timeout: float | None = None, **options: object
    ) -> T:
        """A call that changes something: a lost answer is `OutcomeUnknown` (INV-3)."""
        limit = self._timeout if timeout is None else (CONNECT_SECONDS, timeout)
        with self._typed(doing, wrote=True):
            return call(*args, _request_timeout=limit, **_given(options))

    def send(
        self,
        doing: str,
        path: str,
        query: Mapping[str, str],
        body: IO[bytes] | bytes,
        size: int,
        headers: Mapping[str, str],
    ) -> Any:
        """POST a body as a stream; the answer's JSON."""
        with self._typed(doing, wrote=True):
            all_headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size), **headers}
            response = self._request("POST", path, query, all_headers, body=body)
            self._check(response)
        try:
            return json.loads(response.data)
        except ValueError as error:
            raise errors.lost(f"the answer of lakeFS cannot be read after {doing}: {error}") from error

    @contextmanager
    def receive(
        self, doing: str, path: str, query: Mapping[str, str], start: int = 0, length: int | None = None
    ) -> Iterator[Iterator[bytes]]:
        """GET a body, or a range of it, in large pieces."""
        wanted = {}
        if start or length is not None:
            wanted["Range"] = f"bytes={start}-{'' if length is None else start + length - 1}"
        with self._typed(doing, wrote=False):
            response = self._request("GET", path, query, wanted, preload_content=False)
            try:
                self._check(response)
                yield response.stream(CHUNK, decode_content=False)
            finally:
                response.drain_conn() if response.status >= 300 else response.release_conn()
                if not response.isclosed():  # left half-read: that connection is of no more use
                    response.close()

    def _request(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str], **more: Any
    ) -> Any:
        api_client = self.api._api
        resource = quote(path)
        signed = {**api_client.default_headers, **headers}
        api_client.update_params_for_auth(signed, None, AUTH, resource, method, None)
        url = f"{self._client.config.host}{resource}?{urlencode(query)}"
        limit = self._urllib3.Timeout(connect=self._timeout[0], read=self._timeout[1])
        return self._pool.request(method, url, headers=signed, timeout=limit, redirect=False, **more)

    def _check(self, response: Any) -> None:
        if not 200 <= response.status < 300:
            failed = self._failed(status=response.status, reason=response.reason)
            failed.body = response.data
            raise failed

    @contextmanager
    def _typed(self, doing: str, *, wrote: bool) -> Iterator[None]:
        try:
            yield
        except self._failed as error:
            status = int(error.status or 0)
            if not status:
                raise errors.unreachable(self.endpoint, doing, str(error.reason)) from error
            raise errors.refusal(status, _message(error.body) or str(error.reason), doing, wrote=wrote) from error
        except self._http.HTTPError as error:
            if wrote and not self._never_sent(error):
                raise errors.lost(f"the answer of lakeFS was lost while {doing}: {error}") from error
            raise errors.unreachable(self.endpoint, doing, str(error)) from error

    def _never_sent(self, error: Exception) -> bool:
        """Whether no connection was made at all: then nothing can have happened."""
        reason = getattr(error, "reason", None) or error
        return isinstance(reason, self._http.NewConnectionError | self._http.ConnectTimeoutError | self._http.SSLError)


def _given(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if value is not None}


def _message(body: object) -> str:
    """What the server says, without the JSON around it."""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes | bytearray) else str(body or "")
    try:
        value = json.loads(text)
    except ValueError:
        return text[:500]
    return str(value.get("message", "") or text)[:2000] if isinstance(value, dict) else text[:500]
