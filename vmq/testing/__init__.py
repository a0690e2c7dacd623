"""Brokers and clients for tests, and the pytest plugin that makes fixtures of them (`vmq.testing.plugin`).

A broker in the test's process starts in milliseconds, one as a process of its own can be killed. Both take the keywords
of `vmq.Broker`, and both can fail: connections drop, the broker stalls, a crash loses what was not committed.

Nothing is loaded before it is used: pytest loads the plugin in every suite of an environment that has vmq.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from vmq.testing.authority import Authority, IssuedCertificate
    from vmq.testing.client import AsyncMqttClient, MqttClient, Will
    from vmq.testing.process import BrokerProcess, BrokerStartError
    from vmq.testing.spark import SparkStream
    from vmq.testing.thread import BrokerThread

__all__ = [
    "AsyncMqttClient",
    "Authority",
    "BrokerProcess",
    "BrokerStartError",
    "BrokerThread",
    "IssuedCertificate",
    "MqttClient",
    "SparkStream",
    "Will",
]

_LAZY: Final = {
    "AsyncMqttClient": "client",
    "Authority": "authority",
    "BrokerProcess": "process",
    "BrokerStartError": "process",
    "BrokerThread": "thread",
    "MqttClient": "client",
    "IssuedCertificate": "authority",
    "SparkStream": "spark",
    "Will": "client",
}


if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> object:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
