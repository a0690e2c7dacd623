"""The test kit for plugins."""

from vmq_hooks.testing.calls import call, call_async, explain, explain_async
from vmq_hooks.testing.checks import FakeChecking, check
from vmq_hooks.testing.fake_bridge import FakeBridge
from vmq_hooks.testing.fake_broker import (
    Disconnected,
    FakeBroker,
    FakeCounter,
    Figure,
    Published,
)
from vmq_hooks.testing.loop_thread import LoopThread
from vmq_hooks.testing.recording import Recorder, ReplayError, read_trace, replay
from vmq_hooks.testing.running import RunningBroker, running_broker
from vmq_hooks.testing.started import StartedPlugin, started

__all__ = [
    "Disconnected",
    "FakeBridge",
    "FakeBroker",
    "FakeChecking",
    "FakeCounter",
    "Figure",
    "LoopThread",
    "Published",
    "Recorder",
    "ReplayError",
    "RunningBroker",
    "StartedPlugin",
    "call",
    "call_async",
    "check",
    "explain",
    "explain_async",
    "read_trace",
    "replay",
    "running_broker",
    "started",
]
