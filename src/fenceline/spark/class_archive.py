"""An archive of the classes that Spark loads, so that its JVM starts in a third of the time.

Spark reads and verifies some ten thousand classes at each start. Java can keep them in a file that is mapped into
memory instead (class data sharing). The file depends on this Java and on this installation of Spark; a JVM that finds
it unfit starts without it, so a stale archive costs time and breaks nothing. `fenceline warm` makes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fenceline.errors import ConfigError
from fenceline.repo.whole_file import written_whole
from fenceline.spark.java import check_java

SECONDS_TO_MAKE = 600


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive of one Java with one Spark is kept."""

    java: str
    spark: str
    """The directory pyspark is installed in."""

    @property
    def path(self) -> Path:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        stamp = os.stat(self.java)
        parts = (self.java, stamp.st_size, stamp.st_mtime_ns, self.spark, *self._jars())
        key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
        return cache / "fenceline" / f"spark-classes-{key}.jsa"

    @property
    def options(self) -> str:
        """For the JVM that is started next; nothing where there is no archive."""
        path = self.path
        return f"-XX:SharedArchiveFile={path} -Xlog:disable -Xlog:all=error" if path.exists() else ""

    def _jars(self) -> list[str]:
        jars = Path(self.spark, "jars")
        return sorted(os.listdir(jars)) if jars.is_dir() else []

    def make(self) -> None:
        """Run a JVM through what pipelines do and let it keep the classes it met; replaces what is there."""
        with written_whole(str(self.path)) as part, tempfile.TemporaryDirectory() as scratch:
            env = {
                **os.environ,
                "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={part}",
                "PYSPARK_PYTHON": sys.executable,
            }
            command = [sys.executable, "-m", f"{__package__}.typical_work", scratch]
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=SECONDS_TO_MAKE, check=False
            )
            if done.returncode != 0 or not os.path.exists(part):
                lines = (done.stderr or done.stdout).strip().splitlines()
                raise ConfigError(
                    f"Spark's classes were not archived: {lines[-1] if lines else 'the JVM wrote no archive'}",
                    hint="Spark works without the archive, it only starts more slowly",
                )
        with written_whole(f"{self.path}.json") as part:
            Path(part).write_text(json.dumps({"java": self.java, "spark": self.spark}))

    def forget_others(self) -> list[Path]:
        """Delete the archives of a Java or a Spark that is no longer there."""
        gone = []
        for note in self.path.parent.glob("spark-classes-*.jsa.json"):
            of = json.loads(note.read_text())
            if not (os.path.exists(of["java"]) and os.path.exists(of["spark"])):
                archive = note.with_suffix("")
                archive.unlink(missing_ok=True)
                note.unlink(missing_ok=True)
                gone.append(archive)
        return gone


def find() -> ClassArchive:
    """The archive of the Java and the Spark that this process would use."""
    import pyspark

    return ClassArchive(os.path.realpath(check_java()), os.path.dirname(os.path.realpath(pyspark.__file__)))
