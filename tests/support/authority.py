"""The tests of vmq use what it offers to all tests."""

from vmq.testing.authority import Authority
from vmq.testing.authority import IssuedCertificate as Issued

__all__ = ["Authority", "Issued"]
