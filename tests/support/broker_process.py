"""The tests of vmq use what it offers to all tests."""

from vmq.testing.process import BrokerProcess, BrokerStartError

__all__ = ["BrokerProcess", "BrokerStartError"]
