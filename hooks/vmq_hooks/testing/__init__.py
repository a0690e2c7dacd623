"""The test kit for plugins."""

from vmq_hooks.testing.fake_broker import (
    Disconnected,
    FakeBroker,
    FakeCounter,
    Figure,
    Published,
)

__all__ = [
    "Disconnected",
    "FakeBroker",
    "FakeCounter",
    "Figure",
    "Published",
]
