"""Where a remote repository lies, and how to get in: a URL, options, and what the environment says.

Options have the names that obstore, and Lance with it, give them (`endpoint`, `region`, `access_key_id` …). They are
never printed: neither a URL nor an error holds any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fenceline.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

SCHEMES = ("s3", "gs", "az")
_ALSO = {"s3a": "s3", "gcs": "gs", "azure": "az", "abfs": "az"}
_PREFIX = {"s3": "aws_", "gs": "google_", "az": "azure_"}
_SAID_BY = {
    "endpoint": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
}
DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True, slots=True)
class Access:
    """What other engines need to open the same S3 store; None where they are to find it themselves."""

    endpoint: str | None
    region: str | None
    key: str | None = field(repr=False)
    secret: str | None = field(repr=False)
    token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Location:
    """A bucket or container, and a prefix in it."""

    scheme: str
    bucket: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    @classmethod
    def parse(cls, url: str, options: Mapping[str, str] | None = None) -> Location:
        parts = urlsplit(url, allow_fragments=False)
        scheme = _ALSO.get(parts.scheme, parts.scheme)
        if not parts.netloc or "@" in parts.netloc or parts.query:
            raise ConfigError(
                f"cannot read the address of a {parts.scheme}:// repository",
                hint=f"write {scheme}://bucket/prefix; keys go into the environment or into options",
            )
        prefix = "/".join(part for part in parts.path.split("/") if part)
        return cls(scheme, parts.netloc, prefix, _plain(scheme, options or {}))

    def access(self) -> Access:
        """What this process was told about an S3 store, by options first and then by the environment."""
        endpoint = self._said("endpoint")
        return Access(
            endpoint,
            self._said("region") or (DEFAULT_REGION if endpoint else None),
            self._said("access_key_id"),
            self._said("secret_access_key"),
            self._said("session_token"),
        )

    def storage_options(self) -> dict[str, str]:
        """The same for Lance, which knows the options by their long names."""
        found = {_PREFIX[self.scheme] + name: value for name, value in self.options.items()}
        if self.scheme == "s3":
            access = self.access()
            if access.endpoint:
                found["aws_endpoint"] = access.endpoint
                found["allow_http"] = "true" if access.endpoint.startswith("http://") else "false"
            if access.region:
                found["aws_region"] = access.region
        return found

    def client(self, *, retries: int, timeout: str) -> Client:
        """A client of the store that repeats a request up to `retries` times."""
        settings: dict[str, Any] = dict(self.options)
        settings["client_options"] = {"timeout": timeout, "connect_timeout": "5s", "pool_idle_timeout": "60s"}
        settings["retry_config"] = {"max_retries": retries}
        if self.scheme == "s3":
            access = self.access()
            if access.endpoint:
                settings["endpoint"] = access.endpoint
                settings["client_options"]["allow_http"] = access.endpoint.startswith("http://")
            if access.region:
                settings["region"] = access.region
        from obstore.exceptions import BaseError
        from obstore.store import AzureStore, GCSStore, S3Store

        kinds: Mapping[str, Callable[..., Client]] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
        try:
            return kinds[self.scheme](self.bucket, prefix=self.prefix or None, **settings)
        except (BaseError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{self.url} cannot be opened with the options {', '.join(sorted(self.options)) or '(none)'}: "
                f"{first_line(error)}",
                hint="docs/howto/s3.md lists them",
            ) from error

    def _said(self, name: str) -> str | None:
        return self.options.get(name) or next((v for n in _SAID_BY[name] if (v := os.environ.get(n))), None)


def require_obstore(url: str) -> None:
    if find_spec("obstore") is None:
        raise ConfigError(f"{url} needs obstore, which is not installed", hint="pip install 'fenceline[object-store]'")


def is_remote(url: str) -> bool:
    scheme = urlsplit(url).scheme
    return "://" in url and (scheme in SCHEMES or scheme in _ALSO)


def first_line(error: BaseException) -> str:
    """What went wrong, without the client's inner state."""
    return str(error).partition("\n")[0][:300]


def _plain(scheme: str, options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower().removeprefix(_PREFIX.get(scheme, "")): value for name, value in options.items()}
