"""Looking into a queue without consuming it, and emptying it."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from vmq.admin.elsewhere import purge_in_slots, queue_elsewhere, queue_in_slots
from vmq.admin.errors import NotFoundError
from vmq.admin.listing import SLICE, Listing, Selection
from vmq.admin.payloads import Encoding, show_payload
from vmq.admin.trees import Mountpoint, find, registry_of, until_written
from vmq.core.queue import Queue
from vmq.core.subscriber import OURS, Subscriber
from vmq.mqtt.message import NO_MESSAGE, Delivery
from vmq.store.store import Store, StoreError

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: What stands for a message where the store is damaged.
UNREADABLE: Final = ("unreadable", Delivery(NO_MESSAGE, 0, False, ""))

#: The reason that on_message_drop is given.
PURGED: Final = "purged"


class QueuedRow(Struct, frozen=True, kw_only=True):
    """One message in a queue, in the order in which they will leave it."""

    position: int
    state: Annotated[
        str,
        Meta(
            description="inflight = sent, awaits its acknowledgement; released = QoS 2, awaits PUBCOMP; "
            "waiting = not sent yet, in memory; stored = not sent yet, in the store only; "
            "unreadable = where the store is damaged: nothing but its position is known"
        ),
    ]
    topic: str
    qos: int
    retain: bool
    packet_id: Annotated[int | None, Meta(description="null = not sent yet")]
    size: Annotated[int, Meta(description="Bytes of the payload")]
    payload: str
    encoding: Encoding
    truncated: bool
    shared: Annotated[
        str, Meta(description="The $share/group/filter that chose this client, if any")
    ]


class Purged(Struct, frozen=True):
    """What a purge did."""

    client_id: str
    mountpoint: Mountpoint
    purged: Annotated[int, Meta(description="Messages dropped; those in flight stay")]


def peek(
    broker: "BrokerView",
    client_id: str,
    selection: Selection,
    payload_bytes: int = 64,
    mountpoint: str = "",
) -> Listing[QueuedRow]:
    """What is in a queue, from memory and from the store. Consumes nothing.

    Raises:
        NotFoundError: there is no such session.
    """
    in_slot = queue_in_slots(broker, mountpoint, client_id)
    contents: Iterable[tuple[str, Delivery] | None]
    if in_slot is None:
        contents = _contents(_find_here(broker, client_id, mountpoint).queue)
    else:
        contents = in_slot
    return Listing(QueuedRow, _rows(contents, payload_bytes), selection)


def _find_here(broker: "BrokerView", client_id: str, mountpoint: str) -> Subscriber:
    """The session of a client that is in no slot.

    Raises:
        NotFoundError: there is none here; the text names who has it, or would have it.
    """
    here = registry_of(broker, mountpoint).subscribers.get(client_id)
    owner = queue_elsewhere(broker, mountpoint, client_id)
    if not owner or (here is not None and here.owner == OURS):
        return find(broker, client_id, mountpoint)
    # Whether the client has a session at all, that node knows.
    raise NotFoundError(
        f"there is no queue of client {client_id!r} on this node: that of a durable session of it is with node "
        f"{owner!r}, which owns its slot: ask there"
    )


def _rows(
    contents: Iterable[tuple[str, Delivery] | None], payload_bytes: int
) -> Iterator[QueuedRow | None]:
    position = 0
    for item in contents:
        if item is None:
            yield None
            continue
        position += 1
        state, delivery = item
        message = delivery.content()
        shown = show_payload(message.payload, payload_bytes)
        yield QueuedRow(
            position=position,
            state=state,
            topic=message.topic.decode(errors="replace"),
            qos=delivery.qos,
            retain=delivery.retain,
            packet_id=delivery.packet_id or None,
            size=len(message.payload),
            payload=shown.text,
            encoding=shown.encoding,
            truncated=shown.truncated,
            shared=delivery.group,
        )


def _contents(queue: Queue) -> Iterator[tuple[str, Delivery] | None]:
    """State and delivery of everything in a queue; what is in memory is a copy of this moment.

    Damage is told and passed over: all else can be looked at.
    """
    store = queue.core.store
    lifo = queue.core.options.lifo
    inflight = queue.inflight.content()
    if queue.inflight_is_stored and store is not None:
        try:
            inflight = store.load_inflight(queue.session)
        except StoreError:
            yield UNREADABLE  # however many they are
    waiting = _bursts(queue)
    waiting += queue.quick or ()
    pending = list(queue.pending or ())
    waiting += reversed(pending) if lifo else pending
    first, last, backlog = queue.first, queue.last, queue.backlog
    seen = {delivery.seq for delivery in inflight} | {delivery.seq for delivery in waiting}
    for delivery in inflight:
        yield "released" if delivery.released else "inflight", delivery
    for delivery in waiting:
        yield "waiting", delivery
    if not backlog or store is None:
        return
    for seq in range(last, first - 1, -1) if lifo else range(first, last + 1):
        yield None if seq in seen else _stored(store, queue.session, seq)


def _stored(store: Store, session: bytes, seq: int) -> tuple[str, Delivery] | None:
    """What lies at one place of a stored queue; None if there is nothing."""
    try:
        found = store.load_waiting(session, seq)
    except StoreError:
        return UNREADABLE
    return None if found is None else ("stored", found)


def _bursts(queue: Queue) -> list[Delivery]:
    """The retained messages that a new subscription brought and the socket has not taken yet."""
    found: list[Delivery] = []
    if queue.burst is not None:
        for message, granted in queue.burst.rest():
            found.append(Delivery(message, min(message.qos, granted), True, ""))
    return found


async def purge(broker: "BrokerView", client_id: str, mountpoint: str = "") -> Purged:
    """Drops what waits in a queue now. What was sent stays: the client may have it already.

    Raises:
        NotFoundError: there is no such session.
    """
    if queue_in_slots(broker, mountpoint, client_id) is not None:
        count = purge_in_slots(broker, mountpoint, client_id, PURGED)
        await until_written(broker)
        return Purged(client_id, mountpoint, count)
    subscriber = _find_here(broker, client_id, mountpoint)
    registry = registry_of(broker, mountpoint)
    queue = subscriber.queue
    count = _purge_memory(queue)
    # What comes from here on is none of ours.
    until = queue.next_seq
    while registry.subscribers.get(client_id) is subscriber:
        step = _purge_step(queue, until)
        if step < 0:
            break
        count += step
        await asyncio.sleep(0)
    queue.pump()  # room for what waits for it: publishers that were paused, the fast path
    await until_written(broker)
    return Purged(client_id, mountpoint, count)


def _purge_memory(queue: Queue) -> int:
    store = queue.core.store
    dropped = _bursts(queue)
    dropped += queue.quick or ()
    dropped += queue.pending or ()
    queue.burst = queue.quick = queue.pending = None
    queue.count_memory()
    for delivery in dropped:
        if delivery.seq and store is not None:
            store.remove_waiting(queue.session, delivery)
        queue.drop(delivery, PURGED)
    return len(dropped)


def _purge_step(queue: Queue, until: int) -> int:
    """Drops up to SLICE stored messages from before `until`; how many, or -1 if none is left."""
    store = queue.core.store
    count = 0
    for _ in range(SLICE):
        if store is None or queue.backlog == 0 or queue.first >= until:
            return count or -1
        found = store.load_waiting(queue.session, queue.first)
        queue.step_backlog(True, found is not None)
        if found is not None:
            store.remove_waiting(queue.session, found)
            queue.drop(found, PURGED)
            count += 1
    return count
