"""The application's own broadcasts: bytes that reach every node that is up, at most once, in no order."""

from collections import OrderedDict
from typing import Final

from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.effects import Delivered, Outbox
from vmq_cluster.options import Options

#: Lives of nodes whose broadcasts are remembered.
MAX_ORIGINS: Final = 4096


class Broadcasts:
    """A stream of `vmq_cluster.plumtree`: what was seen, and the last payloads to be asked for."""

    def __init__(self, origin: int, options: Options, outbox: Outbox) -> None:
        """`origin` is a number that no other life of any node has."""
        self.origin = origin
        self._options = options
        self._outbox = outbox
        self._last = 0
        self._seen = NodeClock()
        self._payloads: OrderedDict[Dot, bytes] = OrderedDict()
        self._size = 0

    def next(self, payload: bytes) -> Dot:
        """Numbers a broadcast of this node."""
        self._last += 1
        dot = (self.origin, self._last)
        self._keep(dot, payload)
        return dot

    def is_seen(self, origin: int, number: int) -> bool:
        return (origin, number) in self._seen

    def deliver(self, origin: int, number: int, payload: bytes) -> bool:
        self._keep((origin, number), payload)
        self._outbox.emit(Delivered(origin, payload))
        return True

    def payload(self, origin: int, number: int) -> bytes | None:
        return self._payloads.get((origin, number))

    def _keep(self, dot: Dot, payload: bytes) -> None:
        runs = self._seen.runs
        if dot[0] not in runs and len(runs) >= MAX_ORIGINS:
            del runs[next(iter(runs))]
        self._seen.add(dot)
        self._payloads[dot] = payload
        self._size += len(payload)
        while (
            len(self._payloads) > self._options.max_broadcasts
            or self._size > self._options.max_broadcast_bytes
        ):
            _, dropped = self._payloads.popitem(last=False)
            self._size -= len(dropped)
