"""Adapters for tests, ours and yours: an object store in memory with faults on schedule, and a hand-driven world."""

from fenceline.testing.memory import Fault, MemoryObjects
from fenceline.testing.slow import SlowObjects
from fenceline.testing.world import HandClock, SerialThreads, test_seams

__all__ = ["Fault", "HandClock", "MemoryObjects", "SerialThreads", "SlowObjects", "test_seams"]
