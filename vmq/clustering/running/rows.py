"""Rows of QoS 2 messages for logs with copies, once their publishers' sessions know the dots of these."""

from collections.abc import Callable

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.streams.replicas import Replicas
from vmq.core.output import Output


class SlotRows:
    """Those of one node.

    Args:
        machines: have sessions know of them.
        replicas: the logs.
        output_of: that of a connection, by its number.
        soon: has effects carried out.
    """

    def __init__(
        self,
        machines: SessionNode,
        replicas: Replicas,
        output_of: Callable[[int], Output | None],
        soon: Callable[[], None],
    ) -> None:
        self._machines = machines
        self._replicas = replicas
        self._output_of = output_of
        self._soon = soon

    def hand_in(self) -> None:
        """Hands in what sessions know of since."""
        front = self._machines.front
        rows, front.rows = front.rows, []
        for (_, (_, number), address), message, client_id in rows:
            publisher = self._output_of(message.connection)
            given = message.topic, message.payloads[0], message.qos, message.retain, client_id
            self._replicas.add_row(address, number, given, publisher, self._has(message))

    def _has(self, message: Publication) -> Callable[[], None]:
        def then() -> None:
            self._machines.origin.confirm(message)
            self._soon()

        return then
