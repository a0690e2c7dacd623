"""The tests of vmq use what it offers to all tests."""

from vmq.testing.ports import lasting_port, lasting_ports

__all__ = ["lasting_port", "lasting_ports"]
