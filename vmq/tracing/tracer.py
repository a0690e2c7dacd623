"""Traces that run: who is watched, by whom, and how much each watcher is shown.

While nobody traces, the core's tap is None and call sites are the chains themselves. A trace is
bounded: above its rate lines are left out and their number told; a watcher that does not read loses
lines, never the broker its memory.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from vmq_hooks import Refuse, SubscriberId

from vmq.core.context import Core
from vmq.core.hook_sites import AcceptedUntil, Pending
from vmq.core.ports import Traffic
from vmq.core.states import CLOSED
from vmq.plugins.manager import Plugins
from vmq.protocol.connection import Connection
from vmq.tracing.frames import PacketFrames, client_id_of

#: Lines that wait for a slow watcher.
WAITING: Final = 1000
#: Traces at a time.
LIMIT: Final = 16


class TraceLimitError(Exception):
    """As many traces run as may."""


class Trace:
    """One watcher of one client.

    Args:
        client_id: whom to watch, in every mountpoint.
        payload_bytes: bytes shown of a payload.
        rate: lines a second.
    """

    def __init__(self, client_id: str, payload_bytes: int = 64, rate: int = 100) -> None:
        self.client_id = client_id
        self.payload_bytes = payload_bytes
        self.rate = rate
        self.lines: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self._left_out = 0
        self._second = 0
        self._shown = 0

    def say(self, text: str) -> None:
        """Shows one line, unless that is too many."""
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._shown = second, 0
        if self._shown >= self.rate or self.lines.full():
            # Told at once: the client may fall silent, and its last lines would seem to be all.
            if not self._left_out and not self.lines.full():
                self.lines.put_nowait(f"(more than {self.rate} lines a second: some are left out)")
            self._left_out += 1
            return
        self._shown += 1
        stamp = f"{time.strftime('%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
        if self._left_out:
            text = f"({self._left_out} lines left out)\n{stamp} {text}"
            self._left_out = 0
        self.lines.put_nowait(f"{stamp} {text}")


class Tracer(Traffic):
    """All traces of one broker."""

    def __init__(self, core: Core, plugins: Plugins) -> None:
        super().__init__()
        self.is_on = True
        self._core = core
        self._plugins = plugins
        self._traces: list[Trace] = []
        #: Connections that are looked at: their frames so far.
        self._frames: dict[tuple[Connection, bool], PacketFrames] = {}

    def start(self, trace: Trace) -> None:
        """Begins to watch.

        Raises:
            TraceLimitError: too many traces run.
        """
        if len(self._traces) >= LIMIT:
            raise TraceLimitError(f"{LIMIT} traces run already")
        self._traces.append(trace)
        if len(self._traces) == 1:
            self._core.traffic = self
            self._plugins.watch(self._watched)

    def stop(self, trace: Trace) -> None:
        """Ends one trace; after the last one nothing is looked at any more."""
        if trace in self._traces:
            self._traces.remove(trace)
        if not self._traces:
            self._core.traffic = Traffic()
            self._frames.clear()
            self._plugins.watch(None)

    def _of(self, client_id: str) -> list[Trace]:
        return [each for each in self._traces if each.client_id == client_id]

    # Frames

    def see(self, connection: Connection, incoming: bool, data: bytes) -> None:
        client_id = connection.session.client_id
        if not client_id and incoming:
            client_id = client_id_of(data) or ""
        traces = self._of(client_id) if client_id else []
        if not traces:
            return
        for key in [each for each in self._frames if each[0].state == CLOSED]:
            del self._frames[key]
        key = (connection, incoming)
        frames = self._frames.get(key)
        if frames is None:
            self._frames[key] = frames = PacketFrames()
            rest = connection.session.decoder.rest
            if incoming and rest is not None:
                data = bytes(rest) + data  # the trace began in the middle of a packet
        arrow = "->" if incoming else "<-"
        for text in frames.feed(data, max(each.payload_bytes for each in traces)):
            for trace in traces:
                trace.say(f"{arrow} {text}")

    # Hooks

    def _watched(self, hook: str, site: Callable[..., Any]) -> Callable[..., Any]:
        """A call site that tells of the calls that are about a watched client."""

        def call(*arguments: Any) -> Any:
            who = next((each for each in arguments if isinstance(each, SubscriberId)), None)
            traces = self._of(who.client_id) if who is not None else []
            if not traces:
                return site(*arguments)
            begin = time.perf_counter()
            answer = site(*arguments)
            if isinstance(answer, Pending):
                return self._followed(traces, hook, begin, answer)
            _tell(traces, hook, begin, answer)
            return answer

        return call

    def _followed(self, traces: list[Trace], hook: str, begin: float, inner: Pending) -> Pending:
        outer = Pending(inner.cancel)
        outer.charge = inner.charge

        def arrived(answer: Any) -> None:
            _tell(traces, hook, begin, answer)
            outer.finish(answer)

        inner.then = arrived
        return outer


def _tell(traces: list[Trace], hook: str, begin: float, answer: Any) -> None:
    took = (time.perf_counter() - begin) * 1000
    for trace in traces:
        trace.say(f"   {hook} {verdict_of(hook, answer)} {took:.3f} ms")


def verdict_of(hook: str, answer: Any) -> str:
    """What a call site answered, in words."""
    if isinstance(answer, Refuse):
        whose = f" by {answer.plugin}" if answer.plugin else ""
        return f'refused{whose} "{answer.reason}"'
    if isinstance(answer, AcceptedUntil):
        return "accepted, and kept"
    if answer is None:
        return "accepted" if hook.startswith("auth_") else "called"
    text = repr(answer)
    return "changed " + (text if len(text) <= 200 else text[:197] + "...")
