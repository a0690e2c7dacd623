"""Records of a slot's state, to and from bytes; the kinds are those of `vmq.clustering.slots.state`."""

from typing import Any, Final

import msgspec

from vmq.clustering.messages.fronts import SessionLimits
from vmq.clustering.slots.flow import ClientFlow
from vmq.clustering.slots.queued import (
    PLACES,
    WINDOW,
    QueueBlock,
    SharedRecord,
    StoredMessage,
    messages_of,
)
from vmq.clustering.slots.register import BornAt, ClientRegister, ReceivedId, SentMessage
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import Dot, Lineage
from vmq_cluster.clocks import NodeClock

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder()

HEAD_KEY: Final = b"h"
#: More records of messages than there ever are.
_ALL: Final = 1 << 62

_Change = tuple[str, str, int, int]


def key_of(change: _Change) -> bytes:
    """The key of a record that changed."""
    kind, name, first, _ = change
    if kind == "c":
        return b"c" + first.to_bytes(8, "big")
    if kind == "i" or kind == "x":
        return kind.encode() + first.to_bytes(2, "big") + name.encode()
    return kind.encode() + name.encode()


def run_key(number: int) -> bytes:
    """The key of a record of messages."""
    return b"m" + number.to_bytes(8, "big")


def block_key(block: QueueBlock) -> bytes:
    """The key of a record of a queue."""
    place = block.origin.to_bytes(8, "big") + block.number.to_bytes(8, "big")
    return b"q" + place + block.client.encode()


def value_of(state: SlotState, change: _Change) -> bytes | None:
    """The value as it is now; None: there is none."""
    value = _plain(state, change)
    return None if value is None else _ENCODER.encode(value)


def _plain(state: SlotState, change: _Change) -> Any:
    kind, name, first, _ = change
    if kind == "h":
        return [
            state.lineage,
            state.version,
            sorted(state.included.items()),
            state.last,
            state.lacks,
            sorted(state.runs_of.items()),
            state.mixed,
            state.last_run,
        ]
    if kind == "c":
        return state.context.runs.get(first)
    register = state.registers.get(name.rpartition("\0")[0] if kind == "u" else name)
    if register is None:
        return None
    if kind == "u":
        topic_filter = name.rpartition("\0")[2]
        found = register.subscriptions.get(topic_filter)
        if found is None:
            return None
        places = [register.born.get(topic_filter), register.over.get(topic_filter)]
        rest: list[Any] = [register.before.get(topic_filter, ())]
        since, asked = register.since.get(topic_filter), register.asked.get(topic_filter)
        if since is not None or asked:
            rest.append(None if since is None else sorted(since.runs.items()))
        if asked:
            rest.append(asked)
        return [*found, *places, *rest] if rest != [()] else [*found, *places]
    if kind == "i":
        return _window(register, first)
    if kind == "x":
        received = register.received.get(first)
        return None if received is None else [received.addresses, received.digest, received.front]
    head = [
        *register.age(),
        register.session,
        register.ended,
        register.rank,
        register.connection,
        register.last_packet,
        None,  # in earlier versions, a will
        sorted(register.missed.runs.items()),
        sorted(register.ahead.runs.items()),
        register.user,
    ]
    rest = [register.past, register.ended_past, register.limits]
    if register.is_first:
        return [*head, *rest, register.left, True]
    if register.left:
        return [*head, *rest, register.left]
    return [*head, *rest] if any(rest) else head


def _window(register: ClientRegister, number: int) -> list[Any] | None:
    """The packet ids of a block of them."""
    found = []
    flow = register.flow
    if isinstance(flow, ClientFlow) and flow.is_open:
        return flow.window_of(number * WINDOW, WINDOW) or None
    for packet in range(number * WINDOW, (number + 1) * WINDOW):
        sent = register.window.get(packet)
        if sent is not None:
            found.append([packet, sent.dot, sent.is_received, sent.qos, sent.order])
    return found or None


def _message(dot: Dot, message: StoredMessage) -> list[Any]:
    origin, place = dot
    address, topic, payload = message.address(), message.topic, message.payload
    plain = [origin, place, message.stamp, topic, payload, message.qos, address]
    if message.moves or message.retain:
        plain += [message.moves, message.retain]
    return plain


def take_changes(state: SlotState) -> list[tuple[bytes, bytes | None]]:
    """The records that changed since the last call, each as it is now."""
    found: list[tuple[bytes, bytes | None]] = []
    state.gather()
    for number, entries in state.gather_runs():
        found.append((run_key(number), _ENCODER.encode(entries)))
    for run, dots in state.new_runs:
        messages = []
        for dot in dots:
            message = state.single_messages.get(dot)
            if message is not None and message.run is run:
                messages.append(_message(dot, message))
        if messages:
            found.append((run_key(run.number), _ENCODER.encode(messages)))
    for number in state.gone:
        found.append((run_key(number), None))
    for block in state.changed_blocks:
        value = None if block.is_empty() else _ENCODER.encode((block.least, block.once))
        if value is not None or block.is_stored:
            found.append((block_key(block), value))
        state.end_change(block)
    for each in state.changed:
        value = value_of(state, each)
        if each[0] != "i" or _is_window_told(state, each, value):
            found.append((key_of(each), value))
    for client in state.touched:
        change = "r", client, 0, 0
        found.append((key_of(change), value_of(state, change)))
    state.forget_changes()
    return found


def _is_window_told(state: SlotState, change: _Change, value: bytes | None) -> bool:
    """Whether what packet ids are under way is written: not if they came and went since the last commit."""
    name = change[1], change[2]
    if value is not None:
        state.windows.add(name)
        return True
    is_stored = name in state.windows
    state.windows.discard(name)
    return is_stored


def all_records(state: SlotState) -> dict[bytes, bytes]:
    """The whole state."""
    state.spread()
    state.gather()
    found: dict[bytes, bytes] = {}
    if state.cold and state.reader is not None:
        found = {run_key(number): value for number, value in state.reader.runs(0, state.last_run)}
    runs: dict[int, list[Any]] = {}
    for dot, message in {} if found else state.messages.items():
        assert message.run is not None
        runs.setdefault(message.run.number, []).append(_message(dot, message))
    for number, messages in runs.items():
        found[run_key(number)] = _ENCODER.encode(messages)
    for blocks in state.blocks.values():
        for block in blocks.values():
            if not block.is_empty():
                found[block_key(block)] = _ENCODER.encode((block.least, block.once))
    changes: list[_Change] = [("h", "", 0, 0)]
    changes += [("c", "", origin, 0) for origin in state.context.runs]
    for client, register in state.registers.items():
        changes.append(("r", client, 0, 0))
        changes += [("u", client + "\0" + each, 0, 0) for each in register.subscriptions]
        windows = {packet // WINDOW for packet in register.window}
        changes += [("i", client, number, 0) for number in sorted(windows)]
        changes += [("x", client, packet, 0) for packet in register.received]
    found.update({key_of(each): value_of(state, each) or b"" for each in changes})
    return found


def head_of(head: bytes) -> tuple[Lineage, int, dict[Lineage, int]]:
    """Lineage, version, and what is included."""
    lineage, version, included, *_ = _DECODER.decode(head)
    return _pair(lineage), version, {_pair(each): number for each, number in included}


def lacks_of(head: bytes) -> Lineage:
    """What the state says that it lacks."""
    return _pair(_DECODER.decode(head)[4])


def mixed_of(head: bytes) -> int:
    """Up to which record of messages an owner is to have them in memory."""
    of_runs: list[int] = _DECODER.decode(head)[6:]
    return of_runs[0] if of_runs else _ALL  # a version that had all of them there did not say


def load_state(records: dict[bytes, bytes], is_cold: bool = False) -> SlotState:
    """The state of whole records; `is_cold`: those of messages come only so far as they are mixed."""
    state = SlotState()
    lineage, version, included, last, lacks, *rest = _DECODER.decode(records[HEAD_KEY])
    state.lineage, state.version, state.last = _pair(lineage), version, last
    state.lacks = _pair(lacks)
    state.included = {_pair(each): number for each, number in included}
    state.runs_of = {_pair(each): number for each, number in rest[0]} if rest else {}
    state.mixed = rest[1] if rest[1:] else _ALL
    for key, value in records.items():
        if key[:1] == b"c":
            state.context.runs[int.from_bytes(key[1:9], "big")] = _DECODER.decode(value)
    runs = _load_clients(state, records, is_cold)
    if rest[2:]:
        state.last_run = rest[2]
    state.mixed = min(state.mixed, state.last_run)
    state.forget_changes()
    state.gone = [each.number for each in runs if not each.left]
    return state


def salvage(records: dict[bytes, bytes]) -> SlotState:
    """What a copy that is not whole has: messages and subscriptions. It includes nothing; its context is only they.

    What is in the queues is in a copy before the messages (`followers.cut`): whom a message is for is known. What its
    owner lacked it lacks: else what that kept for clients whom it did not know would be for nobody.
    """
    state = SlotState()
    _load_clients(state, {key: records[key] for key in records if key[:1] in (b"m", b"q", b"u")})
    for dot in state.messages:
        state.context.add(dot)
    if HEAD_KEY in records:
        state.lacks = lacks_of(records[HEAD_KEY])
    state.forget_changes()
    return state


def _pair(found: list[int]) -> tuple[int, int]:
    """A lineage, or a dot, as it is decoded."""
    return found[0], found[1]


def _load_runs(state: SlotState, records: dict[bytes, bytes]) -> list[SharedRecord]:
    """Messages, each in the last record that has it."""
    runs = []
    for key in sorted(key for key in records if key[:1] == b"m"):
        run = SharedRecord(int.from_bytes(key[1:9], "big"))
        runs.append(run)
        for dot, message in messages_of(records[key]):
            before = state.messages.get(dot)
            if before is not None:
                state.forget_run(before)
            state.messages[dot] = message
            state.join_run(message, run)
            state.last = max(state.last, message.stamp)
        state.last_run = run.number
    return runs


def _drop_done(state: SlotState) -> None:
    """Messages that nobody lacks are done: others of their records are not."""
    for dot in [each for each, message in state.messages.items() if not message.holders]:
        state.forget_run(state.messages.pop(dot))


def _load_clients(
    state: SlotState, records: dict[bytes, bytes], is_cold: bool = False
) -> list[SharedRecord]:
    """Everything but head and context; returns the records of messages."""
    runs = _load_runs(state, records)
    cold: list[tuple[str, Dot, int]] = []
    for key, value in records.items():
        kind = key[:1]
        if kind == b"q":
            cold += _load_block(state, key, *_DECODER.decode(value))
        elif kind == b"r":
            _load_head(state.register(key[1:].decode()), _DECODER.decode(value))
        elif kind == b"u":
            client, _, topic_filter = key[1:].decode().rpartition("\0")
            stamp, qos, born, over, *rest = _DECODER.decode(value)
            register = state.register(client)
            register.subscriptions[topic_filter] = (stamp, qos)
            if over is not None:
                register.over[topic_filter] = tuple(over[0]), _points(over[1])
            if born is not None:
                register.born[topic_filter] = _points(born)
            if rest:
                if rest[0]:
                    register.before[topic_filter] = _points(rest[0])
                if rest[1:] and rest[1] is not None:
                    register.since[topic_filter] = NodeClock(dict(rest[1]))
                if rest[2:]:
                    register.asked[topic_filter] = rest[2]
            state.last = max(state.last, stamp)
        elif kind == b"i":
            client = key[3:].decode()
            register = state.register(client)
            state.windows.add((client, int.from_bytes(key[1:3], "big")))
            for packet, raw, is_received, qos, order in _DECODER.decode(value):
                register.window[packet] = SentMessage(_pair(raw), is_received, qos, order)
        elif kind == b"x":
            addresses, digest, front = _DECODER.decode(value)
            register = state.register(key[3:].decode())
            register.received[int.from_bytes(key[1:3], "big")] = ReceivedId(
                tuple([(slot, _pair(dot), group) for slot, dot, group in addresses]), digest, front
            )
    _drop_done(state)
    state.sort()
    if is_cold:
        for client, dot, qos in cold:
            state.put_cold(client, dot, qos)
    for each in state.registers.values():
        each.window = dict(sorted(each.window.items(), key=lambda item: item[1].order))
    return runs


def _load_block(state: SlotState, key: bytes, least: int, once: int) -> list[tuple[str, Dot, int]]:
    """What a client lacks of the messages that are there; returns what of those that are not."""
    found: list[tuple[str, Dot, int]] = []
    client = key[17:].decode()
    origin, number = int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")
    for bit in range(PLACES):
        qos = (least >> bit & 1) or 2 * (once >> bit & 1)
        dot = origin, number * PLACES + bit
        if qos and dot in state.messages:
            state.put(client, dot, qos, state.messages[dot])
        elif qos:
            found.append((client, dot, qos))
    return found


def _points(found: list[list[Any]]) -> tuple[BornAt, ...]:
    return tuple([(_pair(each), at, again, request) for each, at, again, request in found])


def _load_head(register: ClientRegister, value: list[Any]) -> None:
    lineage, register.attached_at, register.records, register.session, register.ended = value[:5]
    register.lineage = _pair(lineage)
    register.rank, register.connection, register.last_packet = value[5:8]
    register.missed.runs.update(dict(value[9]))
    register.ahead.runs.update(dict(value[10]))
    register.user = value[11]
    if value[12:]:
        register.past, register.ended_past = map(tuple, value[12:14])
        if value[14] is not None:
            register.limits = msgspec.convert(value[14], SessionLimits)
    if value[15:]:
        register.left = value[15]
    register.is_first = bool(value[16:])
