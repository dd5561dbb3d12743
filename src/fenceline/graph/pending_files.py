"""Files that change in the same commit as a graph's tables."""

from __future__ import annotations

from collections.abc import Callable

from fenceline.errors import ContractError, NotFound
from fenceline.graph.manifest import Place
from fenceline.txn.transaction import Transaction


class PendingFiles:
    """Kept until the transaction publishes, so that it can begin again on a newer head."""

    def __init__(self, tx: Callable[[], Transaction], place: Place) -> None:
        self._tx, self._place = tx, place
        self._written: dict[str, bytes | None] = {}
        self._uploads: dict[str, str] = {}
        self.touched: set[str] = set()
        """Paths that were read or written: if another changes one of them, this cannot go on."""

    def write(self, path: str, data: bytes | str) -> None:
        self._touch(path)
        self._uploads.pop(path, None)
        self._written[path] = data.encode() if isinstance(data, str) else bytes(data)

    def upload(self, local: str, path: str) -> None:
        """A file or directory of the local disk; it is read when the transaction publishes."""
        self._touch(path)
        self._written.pop(path, None)
        self._uploads[path] = local

    def delete(self, path: str) -> None:
        self._touch(path)
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

    def _touch(self, path: str) -> None:
        if self._place.table_key(path) is not None:
            raise ContractError(f"{path} is the graph's own file", hint="change its rows and its schema by its calls")
        self.touched.add(path)

    def apply(self, tx: Transaction) -> None:
        for path, data in self._written.items():
            if data is None:
                tx.delete(path)
            else:
                tx.write(path, data)
        for path, local in self._uploads.items():
            tx.upload(local, path)
