"""Run the stand-in by itself: `python -m fenceline.testing.lakefs_standin` prints the variables that name it."""

from __future__ import annotations

import argparse
import contextlib
import threading

from fenceline.testing.lakefs_standin.server import KEY, SECRET, lakefs_standin


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fenceline.testing.lakefs_standin", description=__doc__)
    parser.add_argument("--seconds", type=float, default=None, help="stop after so long; else it runs until Ctrl-C")
    given = parser.parse_args()
    with lakefs_standin() as server, contextlib.suppress(KeyboardInterrupt):
        print(f"export LAKECTL_SERVER_ENDPOINT_URL={server.endpoint}")
        print(f"export LAKECTL_CREDENTIALS_ACCESS_KEY_ID={KEY}")
        print(f"export LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY={SECRET}", flush=True)
        threading.Event().wait(given.seconds)


if __name__ == "__main__":
    main()
