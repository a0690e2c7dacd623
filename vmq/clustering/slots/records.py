"""Records of a slot's state, to and from bytes; the kinds are those of `vmq.clustering.slots.state`."""

from typing import Any, Final

import msgspec

from vmq.clustering.messages.fronts import SessionLimits
from vmq.clustering.slots.register import BornAt, ClientRegister, ReceivedId, SentMessage
from vmq.clustering.slots.state import SlotState, StoredMessage
from vmq.clustering.slots.words import Dot, Lineage

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder()

HEAD_KEY: Final = b"h"

_Change = tuple[str, str, int, int]


def key_of(change: _Change) -> bytes:
    """The key of a record that changed."""
    kind, name, first, second = change
    if kind == "c":
        return b"c" + first.to_bytes(8, "big")
    if kind == "m" or kind == "q":
        dot = first.to_bytes(8, "big") + second.to_bytes(8, "big")
        return kind.encode() + dot + name.encode()
    if kind == "i" or kind == "x":
        return kind.encode() + first.to_bytes(2, "big") + name.encode()
    return kind.encode() + name.encode()


def value_of(state: SlotState, change: _Change) -> bytes | None:
    """The value as it is now; None: there is none."""
    value = _plain(state, change)
    return None if value is None else _ENCODER.encode(value)


def _plain(state: SlotState, change: _Change) -> Any:
    kind, name, first, second = change
    if kind == "h":
        return [
            state.lineage,
            state.version,
            sorted(state.included.items()),
            state.last,
            state.lacks,
        ]
    if kind == "c":
        return state.context.runs.get(first)
    if kind == "m":
        message = state.messages.get((first, second))
        if message is None:
            return None
        plain = [message.stamp, message.topic, message.payload, message.qos, message.address()]
        has_more = message.moves or message.retain
        return [*plain, message.moves, message.retain] if has_more else plain
    if kind == "q":
        return state.queues.get(name, {}).get((first, second))
    register = state.registers.get(name.rpartition("\0")[0] if kind == "u" else name)
    if register is None:
        return None
    if kind == "u":
        topic_filter = name.rpartition("\0")[2]
        found = register.subscriptions.get(topic_filter)
        if found is None:
            return None
        return [*found, register.born.get(topic_filter), register.over.get(topic_filter)]
    if kind == "i":
        sent = register.window.get(first)
        return None if sent is None else [sent.dot, sent.is_received, sent.qos, sent.order]
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
        register.will,
        sorted(register.missed.runs.items()),
        sorted(register.ahead.runs.items()),
        register.user,
    ]
    rest = [register.past, register.ended_past, register.limits]
    if register.left:
        return [*head, *rest, register.left]
    return [*head, *rest] if any(rest) else head


def take_changes(state: SlotState) -> list[tuple[bytes, bytes | None]]:
    """The records that changed since the last call, each as it is now."""
    found = [(key_of(each), value_of(state, each)) for each in state.changed]
    state.changed.clear()
    return found


def all_records(state: SlotState) -> dict[bytes, bytes]:
    """The whole state."""
    changes: list[_Change] = [("h", "", 0, 0)]
    changes += [("c", "", origin, 0) for origin in state.context.runs]
    changes += [("m", "", *dot) for dot in state.messages]
    for client, queue in state.queues.items():
        changes += [("q", client, *dot) for dot in queue]
    for client, register in state.registers.items():
        changes.append(("r", client, 0, 0))
        changes += [("u", client + "\0" + each, 0, 0) for each in register.subscriptions]
        changes += [("i", client, packet, 0) for packet in register.window]
        changes += [("x", client, packet, 0) for packet in register.received]
    return {key_of(each): value_of(state, each) or b"" for each in changes}


def head_of(records: dict[bytes, bytes]) -> tuple[Lineage, int, dict[Lineage, int]]:
    """Lineage, version, and what is included."""
    lineage, version, included, *_ = _DECODER.decode(records[HEAD_KEY])
    return _pair(lineage), version, {_pair(each): number for each, number in included}


def lacks_of(records: dict[bytes, bytes]) -> Lineage:
    """What the state says that it lacks."""
    *_, lacks = _DECODER.decode(records[HEAD_KEY])
    return _pair(lacks)


def load_state(records: dict[bytes, bytes]) -> SlotState:
    """The state of whole records."""
    state = SlotState()
    lineage, version, included, last, lacks = _DECODER.decode(records[HEAD_KEY])
    state.lineage, state.version, state.last = _pair(lineage), version, last
    state.lacks = _pair(lacks)
    state.included = {_pair(each): number for each, number in included}
    for key, value in records.items():
        if key[:1] == b"c":
            state.context.runs[int.from_bytes(key[1:9], "big")] = _DECODER.decode(value)
    _load_clients(state, records)
    state.changed.clear()
    return state


def salvage(records: dict[bytes, bytes]) -> SlotState:
    """What a copy that is not whole has: messages and subscriptions. It includes nothing; its context is only they.

    A part of a copy ends between two messages: whom a message in it is for is known.
    """
    found = {
        key: value
        for key, value in records.items()
        if key[:1] in (b"m", b"u") or (key[:1] == b"q" and b"m" + key[1:17] in records)
    }
    state = SlotState()
    _load_clients(state, found)
    for dot in list(state.messages):
        if dot in state.holders:
            state.context.add(dot)
        else:
            del state.messages[dot]
    state.changed.clear()
    return state


def _pair(found: list[int]) -> tuple[int, int]:
    """A lineage, or a dot, as it is decoded."""
    return found[0], found[1]


def _dot_in(key: bytes) -> Dot:
    return int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")


def _load_clients(state: SlotState, records: dict[bytes, bytes]) -> None:
    for key, value in records.items():
        kind = key[:1]
        if kind == b"m":
            state.messages[_dot_in(key)] = message = StoredMessage(*_DECODER.decode(value))
            state.last = max(state.last, message.stamp)
    for key, value in records.items():
        kind = key[:1]
        if kind == b"q":
            dot = _dot_in(key)
            state.put(key[17:].decode(), dot, _DECODER.decode(value), state.messages[dot])
        elif kind == b"r":
            _load_head(state.register(key[1:].decode()), _DECODER.decode(value))
        elif kind == b"u":
            client, _, topic_filter = key[1:].decode().rpartition("\0")
            stamp, qos, born, over = _DECODER.decode(value)
            register = state.register(client)
            register.subscriptions[topic_filter] = (stamp, qos)
            if over is not None:
                register.over[topic_filter] = tuple(over[0]), _points(over[1])
            if born is not None:
                register.born[topic_filter] = _points(born)
            state.last = max(state.last, stamp)
        elif kind == b"i":
            raw, is_received, qos, order = _DECODER.decode(value)
            register = state.register(key[3:].decode())
            register.window[int.from_bytes(key[1:3], "big")] = SentMessage(
                _pair(raw), is_received, qos, order
            )
        elif kind == b"x":
            addresses, digest, front = _DECODER.decode(value)
            register = state.register(key[3:].decode())
            register.received[int.from_bytes(key[1:3], "big")] = ReceivedId(
                tuple([(slot, _pair(dot), group) for slot, dot, group in addresses]), digest, front
            )
    state.sort()
    for each in state.registers.values():
        each.window = dict(sorted(each.window.items(), key=lambda item: item[1].order))


def _points(found: list[list[Any]]) -> tuple[BornAt, ...]:
    return tuple([(_pair(each), at, again, request) for each, at, again, request in found])


def _load_head(register: ClientRegister, value: list[Any]) -> None:
    lineage, register.attached_at, register.records, register.session, register.ended = value[:5]
    register.lineage = _pair(lineage)
    register.rank, register.connection, register.last_packet = value[5:8]
    register.will = None if value[8] is None else (value[8][0], value[8][1], value[8][2])
    register.missed.runs.update(dict(value[9]))
    register.ahead.runs.update(dict(value[10]))
    register.user = value[11]
    if value[12:]:
        register.past, register.ended_past = map(tuple, value[12:14])
        if value[14] is not None:
            register.limits = msgspec.convert(value[14], SessionLimits)
    if value[15:]:
        register.left = value[15]
