"""Where the embedded runner keeps its runs: one SQLite file, used by many processes and threads at once."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from fenceline.errors import ConfigError, FormatTooNew, NotFound, StoreError, StoreFull, StoreReadOnly, store_error
from fenceline.pipeline.embedded.rows import RunRow, TaskRow
from fenceline.seams import Seams

VERSION = 1
BUSY_SECONDS = 30.0
_JSON = ("workflow", "taskdefs", "input", "output", "owner")

_SCHEMA = """
CREATE TABLE runners (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, started REAL NOT NULL, beat REAL NOT NULL, ended REAL
);
CREATE TABLE runs (
    id TEXT PRIMARY KEY, key TEXT NOT NULL, name TEXT NOT NULL, reference TEXT NOT NULL, repository TEXT NOT NULL,
    workflow TEXT NOT NULL, taskdefs TEXT NOT NULL, input TEXT NOT NULL,
    status TEXT NOT NULL, reason TEXT, output TEXT, runner TEXT REFERENCES runners (id),
    created REAL NOT NULL, deadline REAL, ended REAL
);
CREATE UNIQUE INDEX one_running_of_a_key ON runs (key) WHERE status = 'RUNNING';
CREATE INDEX runs_by_age ON runs (created);
CREATE TABLE tasks (
    id TEXT PRIMARY KEY, run TEXT NOT NULL REFERENCES runs (id), reference TEXT NOT NULL, iteration INTEGER NOT NULL,
    retry_count INTEGER NOT NULL, failures INTEGER NOT NULL, epoch INTEGER NOT NULL,
    status TEXT NOT NULL, task TEXT NOT NULL, input TEXT NOT NULL, output TEXT, reason TEXT, code TEXT,
    scheduled REAL NOT NULL, not_before REAL NOT NULL, poll_until REAL, lease_until REAL, deadline REAL,
    owner TEXT, runner TEXT, started REAL, ended REAL, dropped INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX attempts_are_numbered ON tasks (run, reference, iteration, retry_count);
CREATE INDEX open_tasks ON tasks (status, task, not_before) WHERE status IN ('SCHEDULED', 'IN_PROGRESS');
CREATE INDEX started_tasks ON tasks (task, started) WHERE started IS NOT NULL;
CREATE TABLE events (
    run TEXT NOT NULL REFERENCES runs (id), seq INTEGER NOT NULL, time REAL NOT NULL, kind TEXT NOT NULL,
    data TEXT NOT NULL, PRIMARY KEY (run, seq)
) WITHOUT ROWID;
"""


class Store:
    """Runs, attempts and events. Every change is one transaction; those that decide something are synced to disk."""

    def __init__(self, path: str | os.PathLike[str], seams: Seams | None = None) -> None:
        self.path = Path(path)
        self.seams = seams or Seams()
        self._local = threading.local()
        self._prepare()

    def _prepare(self) -> None:
        if not self.path.exists():
            self._create()
        with self.read() as db:
            found = int(db.execute("PRAGMA user_version").fetchone()[0])
        if found > VERSION:
            raise FormatTooNew(
                f"the runner's store {self.path} has format {found}, this fenceline knows {VERSION}",
                hint="upgrade fenceline",
            )
        if found == 0:
            raise ConfigError(f"{self.path} is no runner's store", hint="move it away, or name another with store=")

    def _create(self) -> None:
        """Made complete under another name, then linked: whoever opens it, however early, finds all of it.

        The file itself is never opened here but by SQLite: closing it once would drop the locks that this process
        holds on it through other connections.
        """
        made = self.path.with_name(f".{self.path.name}.{self.seams.ids.execution()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))  # inputs may hold secrets
            with _typed(made), closing(sqlite3.connect(made, isolation_level=None)) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version = {VERSION};COMMIT;")
            with suppress(FileExistsError):  # another process was faster
                os.link(made, self.path)
        except OSError as error:
            raise store_error(error, f"creating the runner's store {self.path}") from error
        finally:
            made.unlink(missing_ok=True)

    # --- transactions -------------------------------------------------------------------------------------------

    @contextmanager
    def write(self, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction that nobody else writes beside. Not durable: a power cut may take it back, a kill not."""
        db = self._connection()
        with _typed(self.path):
            db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One look: everything read in it is of the same moment."""
        db = self._connection()
        with _typed(self.path):
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.execute("ROLLBACK")

    def _connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            with _typed(self.path):
                found = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
                found.row_factory = sqlite3.Row
                mode = found.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                found.execute("PRAGMA foreign_keys = ON")
            if mode != "wal":
                raise ConfigError(
                    f"{self.path} is on a file system where SQLite cannot share a file",
                    hint="put the runner's store on a local disk",
                )
            self._local.connection = found
        return found

    def close(self) -> None:
        """Close this thread's connection."""
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is not None:
            found.close()
            self._local.connection = None


# --- rows, within a transaction -----------------------------------------------------------------------------------


def insert(db: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    names = ", ".join(row)
    marks = ", ".join("?" for _ in row)
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", _columns(row))  # noqa: S608


def update(db: sqlite3.Connection, table: str, row_id: str, **values: Any) -> None:
    sets = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE {table} SET {sets} WHERE id = ?", [*_columns(values), row_id])  # noqa: S608


def find_run(db: sqlite3.Connection, run: str) -> RunRow | None:
    row = db.execute("SELECT * FROM runs WHERE id = ?", [run]).fetchone()
    return RunRow.of(row) if row else None


def get_run(db: sqlite3.Connection, run: str) -> RunRow:
    found = find_run(db, run)
    if found is None:
        raise NotFound(f"there is no run {run!r}", hint="fenceline runs lists them", run=run)
    return found


def find_task(db: sqlite3.Connection, task_id: str) -> TaskRow | None:
    row = db.execute("SELECT * FROM tasks WHERE id = ?", [task_id]).fetchone()
    return TaskRow.of(row) if row else None


def attempts(db: sqlite3.Connection, run: str) -> list[TaskRow]:
    """Every attempt of a run, in the order in which they were scheduled."""
    return [TaskRow.of(row) for row in db.execute("SELECT * FROM tasks WHERE run = ? ORDER BY rowid", [run])]


def latest(rows: Sequence[TaskRow]) -> dict[str, TaskRow]:
    """The newest attempt of every step by its reference, without those that a restart made history."""
    return {row.reference: row for row in sorted(rows, key=lambda row: row.retry_count) if not row.dropped}


def add_event(db: sqlite3.Connection, run: str, time: float, kind: str, data: Mapping[str, Any]) -> None:
    db.execute(
        "INSERT INTO events (run, seq, time, kind, data) "
        "SELECT ?, coalesce(max(seq), 0) + 1, ?, ?, ? FROM events WHERE run = ?",
        [run, time, kind, json.dumps(data), run],
    )


def _columns(row: Mapping[str, Any]) -> list[Any]:
    return [json.dumps(value) if name in _JSON and value is not None else value for name, value in row.items()]


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None) or 0
        if code & 0xFF == sqlite3.SQLITE_FULL:
            raise StoreFull(f"no room left for the runner's store {path}", hint="free space on that disk") from error
        if code & 0xFF == sqlite3.SQLITE_READONLY:
            raise StoreReadOnly(
                f"the runner's store {path} cannot be written", hint="check its owner and mode"
            ) from error
        raise StoreError(
            f"the runner's store {path} failed: {error}",
            hint="another process may hold it, or the disk has failed: run the command again",
        ) from error
