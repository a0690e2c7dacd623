"""The tests of vmq use what it offers to all tests."""

from vmq.testing.closing import Closing

__all__ = ["Closing"]
