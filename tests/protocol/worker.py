"""A writer or a caretaker of the soak: `python worker.py publish|care ROOT NAME`, until it is killed.

A publisher writes one line per acknowledged publish to ROOT/../acks/NAME; the line is the key. On a restart it first
tries again the key it may have been killed with, as a scheduler would.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fenceline as fl


def publish(root: Path, name: str) -> None:
    acks = root.parent / "acks" / name
    done = acks.read_text().split() if acks.exists() else []
    number = int(done[-1].partition(":")[2]) + 1 if done else 0
    log = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    repo = fl.open_repository(root)
    while True:
        key = f"{name}:{number}"
        with repo.transaction("main", key=key, message=key, on_conflict="rebase", actor=name, lease=5) as tx:
            tx.write(f"{name}/{number % 50}", key.encode())
            tx.write(f"{name}/last", key.encode())
        os.write(log, f"{key}\n".encode())
        number += 1


def care(root: Path, name: str) -> None:
    repo = fl.open_repository(root)
    while True:
        repo.recover()
        repo.gc(grace=0)


if __name__ == "__main__":
    {"publish": publish, "care": care}[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
