"""A lakeFS server for tests, in this process and on loopback: `with lakefs_standin() as server: …`."""

from fenceline.testing.lakefs_standin.server import CallFault, StandIn, lakefs_standin

__all__ = ["CallFault", "StandIn", "lakefs_standin"]
