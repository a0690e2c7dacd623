"""What is published goes to the streams that keep its topic, before it goes to anybody else."""

from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.source import Source
from vmq.core.trie import Route
from vmq.disk.durable import Durable
from vmq.mqtt.message import Message
from vmq.store.store import StoreError


def feed_streams(
    core: Core,
    route: Route,
    message: Message,
    source: Source,
    waiter: Output | None,
    names: frozenset[str] | None = None,
) -> None:
    """Hands a message to the streams that keep its topic, before it is handed on.

    Args:
        core: the broker's.
        route: its topic's.
        message: the message.
        source: its publisher.
        waiter: whose answers wait until the streams have it safe; None: nobody's.
        names: of the streams that lack it; None: it is new to all.

    Raises:
        StoreError: a stream cannot take a message that asks for an acknowledgement.
    """
    source.feeds_streams = True
    client_id, publisher = source.client_id, source.publisher()
    now = int(core.wall_clock() * 1_000_000)
    taps = route.taps
    if names is not None:
        taps = [tap for tap in taps if tap.name in names]
    if message.qos and len(taps) > 1:
        # All or none: a message that comes again must not be twice in some of the streams. Twice,
        # since making room for one may take away the room of another, though only once.
        for _ in (1, 2):
            for tap in taps:
                if not tap.has_room(route.topic, message.payload, client_id):
                    tap.refuse(message.qos, 1)
                    raise StoreError("a stream cannot write")
    for tap in taps:
        kept = route.topic, message.payload, message.qos, message.retain
        number: int = tap.append(*kept, client_id, now, publisher)
        if number > 0 and waiter is not None:
            safe: Durable = tap.safe_of(route.topic, client_id)
            safe.wanted = number
            waiter.answer_after(safe, number)
        elif number < 0 and message.qos:
            raise StoreError("a stream cannot write")


def feed_streams_run(core: Core, route: Route, payloads: list[bytes], source: Source) -> None:
    """Appends a run of messages at QoS 0 to the route's streams, which take or drop them."""
    source.feeds_streams = True
    client_id, publisher = source.client_id, source.publisher()
    now = int(core.wall_clock() * 1_000_000)
    for tap in route.taps:
        if len(payloads) == 1:
            tap.append(route.topic, payloads[0], 0, False, client_id, now, publisher)
        else:
            tap.append_run(route.topic, payloads, 0, False, client_id, now, publisher)
