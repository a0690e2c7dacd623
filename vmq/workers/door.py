"""Where MQTT comes in at a listener of HTTP, which the supervisor has: each connection is given to a worker."""

import logging
from typing import TYPE_CHECKING, Any

from vmq.listeners.listener import peer_of
from vmq.workers.handover import Handed

if TYPE_CHECKING:
    from vmq.config.options import Config
    from vmq.workers.process import Worker
    from vmq.workers.roles import SupervisorView

log = logging.getLogger("vmq.workers")


class WorkerDoor:
    """Gives the connections of one listener to the worker that has the fewest of them."""

    def __init__(self, name: str, supervisor: "SupervisorView") -> None:
        self._name = name
        self._supervisor = supervisor

    @property
    def connections(self) -> int:
        """Those that are open, and one that has ended for up to a second more."""
        return sum(self._of(worker) for worker in self._supervisor.workers.values())

    def _of(self, worker: "Worker") -> int:
        return worker.doors.connections(self._name)

    def take_over(self, transport: Any, begun: bytes) -> None:
        """Gives a connection to a worker."""
        sock = transport.get_extra_info("socket")
        handed = Handed(self._name, int(sock.family), begun)
        running = [each for each in self._supervisor.serving if each.is_running]
        transport.pause_reading()  # what comes now is the worker's
        if not any(each.hand_over(handed, sock.fileno()) for each in sorted(running, key=self._of)):
            peer = peer_of(transport.get_extra_info("peername"))
            text = 'refused listener=%s peer=%s reason="no worker takes it"'
            log.warning(text, self._name, peer)
        transport.abort()  # this process's descriptor; the connection stays

    def configure(self, _config: "Config") -> None:
        """The workers do."""
