"""Rows of QoS 2 messages once their publishers' sessions know them: for logs with copies, and to become jobs."""

from collections.abc import Callable

from vmq.clustering.front.connection import KnownRow
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.running.fronts import SlotFronts
from vmq.clustering.slots.words import split_scope
from vmq.clustering.streams.replicas import Replicas
from vmq.core.context import Core
from vmq.core.output import Output
from vmq.mqtt.special import JOB_ROW, MAPPING_ROW


class HandedRow:
    """A row that is to become a job, wherever its publisher is.

    Args:
        row: what its session knows.
        machines: this node's.
        publisher: its connection; None: the client has gone.
        soon: has effects carried out.
    """

    def __init__(
        self,
        row: KnownRow,
        machines: SessionNode,
        publisher: Output | None,
        soon: Callable[[], None],
    ) -> None:
        self._row = row
        self._machines = machines
        self._soon = soon
        self.publisher = publisher
        self.name, self.number, self.packet = row.name, row.number, row.packet
        #: Nobody else was asked to hand it in; it is a job, which is on its hosts.
        self.is_new, self.is_done = row.is_new, row.is_done
        self.connection = row.message.connection
        self.topic, self.payload = row.message.topic, row.message.payloads[0]
        self.retain = row.message.retain
        scope, self.client_id = split_scope(row.client)
        self.mountpoint = scope.strip("\0")

    def confirm(self) -> None:
        """Its publisher need not wait for it."""
        self._machines.origin.confirm(self._row.message)
        self._soon()

    def done(self, then: Callable[[], None]) -> None:
        """It is on its hosts: its publisher waits until its session knows that, and `then` follows."""

        def told(is_known: bool) -> None:
            if is_known:
                then()
            self.confirm()

        self._machines.front.settle(self._row, told)
        self._soon()

    def drop(self, reason: str) -> None:
        """It cannot be handed in at present: its publisher is closed unanswered, and sends it again."""
        self._row.message.then = _nothing
        if self.publisher is not None:
            self.publisher.close(reason + " [MQTT-4.8.0-2]")
        self.confirm()


class SlotRows:
    """Those of one node.

    Args:
        machines: have sessions know of them.
        replicas: the logs.
        fronts: the connections of this node.
        core: has the jobs, and what maps messages to them.
        soon: has effects carried out.
    """

    def __init__(
        self,
        machines: SessionNode,
        replicas: Replicas,
        fronts: SlotFronts,
        core: Core,
        soon: Callable[[], None],
    ) -> None:
        self._machines = machines
        self._replicas = replicas
        self._fronts = fronts
        self._core = core
        self._soon = soon

    def hand_in(self) -> None:
        """Hands in what sessions know of since."""
        front = self._machines.front
        rows, front.rows = front.rows, []
        for row in rows:
            message = row.message
            publisher = self._fronts.output_of(message.connection)
            if row.name.startswith((JOB_ROW, MAPPING_ROW)):
                self._to_jobs(HandedRow(row, self._machines, publisher, self._soon))
                continue
            given = message.topic, message.payloads[0], message.qos, message.retain, row.client
            self._replicas.add_row(row.name, row.number, given, publisher, self._has(message))

    def _to_jobs(self, row: HandedRow) -> None:
        if row.name.startswith(JOB_ROW):
            self._core.jobs.hand_in(row)
        else:
            self._core.mappings.hand_in(row)

    def _has(self, message: Publication) -> Callable[[], None]:
        def then() -> None:
            self._machines.origin.confirm(message)
            self._soon()

        return then


def _nothing() -> None:
    pass
