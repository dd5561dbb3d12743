"""What a session is started with: the defaults for this machine, and what the user adds to them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fenceline.errors import ConfigError

GIB = 1 << 30
_LEAST_MEMORY, _MOST_MEMORY = 1 * GIB, 8 * GIB
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

SERIAL_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"
LISTED_BY_DRIVER = "100000"
"""Files listed by the driver itself: a Spark job for it takes four times as long, even for a thousand files."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs: on this machine (`local[*]`), on a cluster (`spark://…`), or behind Connect (`sc://…`)."""

    master: str = "local[*]"
    app_name: str = "fenceline"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Added to the defaults; wins over them."""

    def __post_init__(self) -> None:
        if not self.master:
            raise ConfigError("Spark's master is empty", hint="use local[*], spark://host:7077 or sc://host:15002")

    @property
    def is_local(self) -> bool:
        return is_local(self.master)

    @property
    def is_connect(self) -> bool:
        return self.master.startswith("sc://")

    def resolved(self, scratch: str) -> dict[str, str]:
        """Every setting the session starts with; `scratch` is a directory that goes when it stops."""
        defaults = {
            "spark.driver.memory": f"{driver_memory() >> 20}m",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": f"{scratch}/warehouse",
            SERIAL_LISTING: LISTED_BY_DRIVER,
        }
        if self.is_local:
            defaults["spark.local.dir"] = f"{scratch}/local"
            defaults["spark.sql.shuffle.partitions"] = str(cores())
        if self.is_local or urlsplit(self.master).hostname in _LOOPBACK:
            defaults["spark.driver.host"] = defaults["spark.driver.bindAddress"] = "127.0.0.1"
        return {**defaults, **self.conf, "spark.master": self.master, "spark.app.name": self.app_name}


def is_local(master: str) -> bool:
    """Whether executors run inside the driver. `local-cluster[…]` starts processes of their own."""
    return master == "local" or master.startswith("local[")


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def driver_memory() -> int:
    """A quarter of what this machine or container has, within bounds."""
    return max(_LEAST_MEMORY, min(_memory() // 4, _MOST_MEMORY))


def _memory() -> int:
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            limit = file.read().strip()
    except OSError:  # no such control group here: the machine's memory is what there is
        return physical
    return min(physical, int(limit)) if limit.isdigit() else physical
