"""A mapping that takes the messages that a stream has kept: each once, as a consumer group of its own.

The streams read, publish and keep the cursor (`vmq.streams.serving.following`); here is what becomes of the rows.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from vmq.config.mappings import MappingOptions, circles, stream_source
from vmq.jobs.mappings.mapping import MessageMapping, Seen
from vmq.jobs.mappings.sending import FLAWS, MappingSender
from vmq.jobs.queues import JobRefusedError
from vmq.mqtt.special import GroupTopic

log = logging.getLogger("vmq.jobs")

#: QoS at which a message is published that came at 0: what is done once does not get lost on its way.
_LEAST_QOS: Final = 1

#: Has a mapping read a stream, until that is cancelled.
Follow = Callable[[GroupTopic, "StreamMapping"], Coroutine[Any, Any, None]]


async def no_streams(_topic: GroupTopic, mapper: "StreamMapping") -> None:
    """For jobs without a broker."""
    mapper.cannot("there are no streams")


class StreamMapping:
    """One of them, from `ask` to `stop`.

    Args:
        mapping: the mapping.
        sender: knows what can be sent on.
        follow: reads the stream.
        safe: returns once dead letters are safe.
        others: all mappings of now, by name.
    """

    def __init__(
        self,
        mapping: MessageMapping,
        sender: MappingSender,
        follow: Follow,
        safe: Callable[[], Awaitable[None]],
        others: Callable[[], Mapping[str, MappingOptions]],
    ) -> None:
        self.mapping = mapping
        self.sender = sender
        self.follow = follow
        self.safe = safe
        self.others = others
        self.name = mapping.name
        self.task: asyncio.Task[None] | None = None
        #: Why it could not go on, as the log has it already.
        self.told = ""

    def ask(self) -> None:
        """Reads on."""
        self.task = asyncio.create_task(self.follow(stream_source(self.mapping.source), self))

    def stop(self) -> None:
        """Reads no more, once what it does now is done."""
        if self.task is not None:
            self.task.cancel()

    # As the streams know it

    def refuses(self, streams: Mapping[str, Sequence[str]]) -> str:
        """Why it reads none of these streams, which have these filters; empty: it does."""
        return dict(circles(self.others(), streams)).get(f"{self.name}.to", "")

    async def map(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, bytes, int, bool]]:
        """What comes of some rows.

        Raises:
            OSError: dead letters cannot be written.
        """
        found: list[tuple[str, bytes, int, bool]] = []
        failed = self.mapping.failed
        for row in rows:
            payload: bytes = row["payload"] or b""
            try:
                found += self.messages_of(row, payload)
            except (*FLAWS, JobRefusedError) as flaw:
                self.sender.fail(self.mapping, payload, str(flaw))
        if self.mapping.failed > failed and self.mapping.options.on_error == "dead":
            await self.safe()
        return found

    def messages_of(
        self, row: Mapping[str, Any], payload: bytes
    ) -> list[tuple[str, bytes, int, bool]]:
        """What comes of one."""
        qos = max(_LEAST_QOS, row["qos"])
        seen = Seen(
            row["topic"],
            payload,
            row["qos"],
            row["retain"],
            row["client_id"] or "",
            row["timestamp"] / 1e6,
        )
        outs = self.mapping.map(seen)
        for out in outs:
            self.sender.check(out, "")
        return [(out.target, out.body, qos, False) for out in outs]

    def joined(self) -> None:
        """It reads."""
        self.mapping.hindrance = ""

    def committed(self, messages: int) -> None:
        """So many are published, or will be."""
        self.mapping.sent += messages
        self.told = ""

    def cannot(self, reason: str) -> None:
        """It cannot go on for now."""
        if self.told != reason:
            log.warning('mapping=%s waits reason="%s"', self.name, reason)
        self.mapping.hindrance = self.told = reason
