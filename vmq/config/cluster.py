"""The options of this broker as a node of a cluster, and which of them go together."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.config.values import PATH_PATTERN

# An option so marked may change on a running broker (vmq.config.reload).
_LIVE: Final = {"live": True}

#: The largest packet that can go to another node, with what is around it there.
LARGEST_PACKET: Final = 59 * 1024 * 1024

ADDRESS_FORMS: Final = "tcp://HOST:PORT or ipc://PATH"


class ClusterOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This broker as a node of a cluster. It is one when `listen` is set."""

    node_name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_.@-]{0,255}\Z",
            description="The node's name, which no other node has, and which stays; empty = the machine's name.",
            extra={"accepts": "letters, digits and _ . @ -"},
        ),
    ] = ""
    listen: Annotated[
        str,
        Meta(
            max_length=1000,
            description="Where the other nodes reach this one; empty = no cluster.",
            extra={"accepts": f"empty, {ADDRESS_FORMS}"},
        ),
    ] = ""
    advertise: Annotated[
        str,
        Meta(
            max_length=1000,
            description="The same as the others see it, if that is another address; needed where `listen` "
            "is 0.0.0.0 or [::].",
            extra={"accepts": f"empty, {ADDRESS_FORMS}"},
        ),
    ] = ""
    join: Annotated[
        list[Annotated[str, Meta(max_length=1000)]],
        Meta(
            max_length=100,
            description="Nodes of which one is asked to take this one in, as long as it is alone and was not taken "
            "out; until then it serves no clients. One whose own address is among them may be the first, and serves. "
            "Members that are missed are looked for there, too: they may have other addresses by now.",
            extra={"accepts": 'a list of addresses, as in ["tcp://10.0.0.1:44053"]'},
        ),
    ] = msgspec.field(default_factory=list)
    alone: Annotated[
        bool,
        Meta(
            description="Serve clients though this node has left its cluster, was taken out of it, is not let into the "
            "one that it is to join, or has a name that another node has there: as a broker by itself, whose messages "
            "stay with it.",
        ),
    ] = False
    host: Annotated[
        str,
        Meta(
            max_length=255,
            description="What this node shares a disk or a machine with, by a name that those others have, too: "
            "copies of a job are on different hosts. Empty = the node is a host of its own.",
            extra={"accepts": "any text"},
        ),
    ] = ""
    key_file: Annotated[
        Annotated[str, Meta(pattern=PATH_PATTERN)] | None,
        Meta(
            description="File with the key that all nodes share (`vmq cluster keygen`); unset = none, and "
            "then only loopback and ipc addresses are accepted.",
            extra={"accepts": "a path"},
        ),
    ] = None
    heartbeat_interval: Annotated[
        float,
        Meta(
            ge=0.05, le=3600, description="Seconds between two signs of life to every other node."
        ),
    ] = 1.0
    heartbeat_timeout: Annotated[
        float,
        Meta(
            ge=0.1,
            le=86_400,
            description="Seconds of silence after which a node counts as down; up to three times as long where answers "
            "of that node take long. At least twice heartbeat_interval.",
        ),
    ] = 3.0
    dead_node_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=31_536_000,
            description="Seconds after which a node that is down is taken out of the cluster; 0 = never. "
            "It comes back by itself when it is well again. Until then messages of QoS 1 and 2 wait for it, also those "
            "for its clean sessions; then they go to the nodes that have its durable sessions.",
        ),
    ] = 0.0
    sync_timeout: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="Seconds that a member waits at its start, before it lets clients in, until it has heard from "
            "another one what became of its sessions; 0 = not at all.",
        ),
    ] = 10.0
    buffer_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=1 << 40,
            description="Messages of QoS 1 and 2 that wait in the store for one other node, in bytes; memory holds "
            '4 MiB of them at most. What does not fit is dropped; with queue.overflow = "pause_publisher" clients '
            "that publish to a node that is up are read no further instead.",
        ),
    ] = 67_108_864
    leader_buffer_bytes: Annotated[
        int,
        Meta(
            ge=67_108_864,
            le=1 << 40,
            description="Messages for streams with replicas that wait in memory until a leader has them, of all "
            "partitions, in bytes. A partition gets as much as is free still, 16 MiB at most; who publishes to one "
            "that has no more is disconnected unacknowledged, at QoS 0 the message is dropped.",
        ),
    ] = 134_217_728
    suback_after: Annotated[
        Literal["local", "cluster"],
        Meta(
            description="What a SUBACK waits for: that this node has the subscription, or that every node that is up "
            "sends its messages. The next packets of the client wait behind it."
        ),
    ] = "local"
    suback_timeout: Annotated[
        float,
        Meta(
            ge=0.1,
            le=3600,
            description='Seconds after which a node that is up is waited for no longer with suback_after = "cluster".',
        ),
    ] = 5.0
    ack_after: Annotated[
        Literal["local", "remote"],
        Meta(
            description="What the acknowledgement of a publish of QoS 1 or 2 waits for where clients without a durable "
            "session, or streams with one copy, are at other nodes: that this node's store has what is for them, or "
            "that the stores of those that are up have it. For durable sessions it waits for who has their slots."
        ),
    ] = "local"
    slots: Annotated[
        int,
        Meta(
            ge=1,
            le=2047,
            description="Slots that durable sessions are in, alike on all nodes of the cluster and for ever.",
        ),
    ] = 1024
    replicas: Annotated[
        int,
        Meta(
            ge=1,
            le=16,
            description="Nodes that have each durable session, the owner of its slot included, as far as there are so "
            "many; what is acknowledged survives the loss of all but one of them. 1 = no copies. When a node joins, "
            "slots move to it in the background.",
        ),
    ] = 2
    allow_register_during_netsplit: Annotated[
        bool,
        Meta(
            description="Let clients in while a member of the cluster cannot be reached; else CONNECT is answered "
            "with code 3.",
            extra=_LIVE,
        ),
    ] = True
    allow_publish_during_netsplit: Annotated[
        bool,
        Meta(
            description="Take messages then; else those of QoS 0 and wills are dropped, and one of QoS 1 or 2 closes "
            "the connection unacknowledged.",
            extra=_LIVE,
        ),
    ] = True
    allow_subscribe_during_netsplit: Annotated[
        bool,
        Meta(
            description="Take subscriptions then; else they are answered with failure (0x80), which closes the "
            "connection of an MQTT 3.1 client, since that has no such answer.",
            extra=_LIVE,
        ),
    ] = True
    allow_unsubscribe_during_netsplit: Annotated[
        bool,
        Meta(
            description="Let clients unsubscribe then; else UNSUBSCRIBE closes the connection unanswered, for there "
            "is no answer that says no.",
            extra=_LIVE,
        ),
    ] = True


def problems_of(options: ClusterOptions) -> Iterator[tuple[str, str]]:
    """Options that are wrong or do not go together, and why."""
    if options.heartbeat_timeout < 2 * options.heartbeat_interval:
        yield (
            "heartbeat_timeout",
            f"accepted: at least twice heartbeat_interval, which is {options.heartbeat_interval:g}",
        )
    if not options.listen:
        for name in ("advertise", "join"):
            if getattr(options, name):
                yield name, "there is no cluster without cluster.listen; accepted: with it"
        return
    # Late: most brokers are no nodes and need no ZeroMQ.
    from vmq_cluster.addresses import check_address
    from vmq_cluster.errors import ClusterError

    # Of the key only its presence counts here; the file is read at the start.
    key = options.key_file
    for name, addresses in (
        ("listen", [options.listen]),
        ("advertise", [options.advertise] if options.advertise else []),
        ("join", options.join),
    ):
        for address in addresses:
            try:
                check_address(address, key)
            except ClusterError as error:
                yield name, str(error)
    if is_wildcard(options.listen) and not options.advertise:
        what = f"missing: {options.listen} is no address that other nodes can use"
        yield "advertise", f"{what}; accepted: tcp://HOST:PORT, where they reach this one"


def is_wildcard(address: str) -> bool:
    """Whether an address stands for all of this machine."""
    return address.startswith(("tcp://0.0.0.0:", "tcp://[::]:"))


def slots_folder(data_dir: Path) -> Path:
    """Where a data directory has durable sessions in slots: worker 1's as those of a process alone."""
    return data_dir / "cluster" / "slots"
