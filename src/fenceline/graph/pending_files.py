"""Files that change in the same commit as a graph's tables."""

from __future__ import annotations

from collections.abc import Callable

from fenceline.errors import NotFound
from fenceline.txn.transaction import Transaction


class PendingFiles:
    """Kept until the transaction publishes, so that it can begin again on a newer head."""

    def __init__(self, tx: Callable[[], Transaction]) -> None:
        self._tx = tx
        self._written: dict[str, bytes | None] = {}
        self._uploads: dict[str, str] = {}
        self.touched: set[str] = set()
        """Paths that were read or written: if another changes one of them, this cannot go on."""

    def write(self, path: str, data: bytes | str) -> None:
        self.touched.add(path)
        self._uploads.pop(path, None)
        self._written[path] = data.encode() if isinstance(data, str) else bytes(data)

    def upload(self, local: str, path: str) -> None:
        """A file or directory of the local disk; it is read when the transaction publishes."""
        self.touched.add(path)
        self._written.pop(path, None)
        self._uploads[path] = local

    def delete(self, path: str) -> None:
        self.touched.add(path)
        self._uploads.pop(path, None)
        self._written[path] = None

    def read(self, path: str) -> bytes:
        self.touched.add(path)
        if path in self._written:
            data = self._written[path]
            if data is None:
                raise NotFound(f"{path!r} was deleted in this transaction", hint="write it again", path=path)
            return data
        return self._tx().read(path)

    def apply(self, tx: Transaction) -> None:
        for path, data in self._written.items():
            if data is None:
                tx.delete(path)
            else:
                tx.write(path, data)
        for path, local in self._uploads.items():
            tx.upload(local, path)
