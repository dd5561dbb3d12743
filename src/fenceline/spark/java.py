"""The Java that Spark will be started with: found and judged before Spark can fail in its own words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from fenceline.errors import ConfigError

OLDEST = 17
INSTALL = (
    f"install Java {OLDEST} or newer: apt-get install openjdk-17-jre-headless, or brew install temurin; "
    "then set JAVA_HOME or put java on PATH"
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def check_java() -> str:
    """The path of a Java that Spark can run on."""
    found = _find()
    if found is None:
        raise ConfigError("Spark needs Java, and there is none", hint=INSTALL)
    try:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{found} cannot be run: {error}", hint=INSTALL) from error
    version = _VERSION.search(said.stderr + said.stdout)
    if said.returncode != 0 or version is None:
        raise ConfigError(f"{found} is not a working Java", hint=INSTALL)
    major = int(version[2] or 0) if version[1] == "1" else int(version[1])  # 1.8 is what Java 8 calls itself
    if major < OLDEST:
        raise ConfigError(f"{found} is Java {major}; Spark needs {OLDEST} or newer", hint=INSTALL)
    return found


def _find() -> str | None:
    """As Spark's own start script looks for it: JAVA_HOME first, then PATH."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java")
    java = os.path.join(home, "bin", "java")
    if not os.access(java, os.X_OK):
        raise ConfigError(f"JAVA_HOME is {home}, and there is no bin/java in it", hint=f"unset it, or {INSTALL}")
    return java
