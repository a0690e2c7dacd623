"""Messages between nodes: there and back, and nothing that raises anything else."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.messages import codec
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.publishes import RemotePublish
from vmq_cluster import messages

PUBLISH = RemotePublish(b"a/b", b"payload", 1, "m")
NUMBERS = st.integers(1, (1 << 62) - 1)


def parcel_of(place: tuple[int, int, int], *messages: NodeMessage) -> bytes:
    parcel = bytearray(codec.HEAD)
    for each in messages:
        codec.encode_into(each, parcel, -1)
    return codec.close(parcel, place, len(messages))


@given(NUMBERS, NUMBERS, NUMBERS, st.lists(st.binary(max_size=300), max_size=40))
def test_a_parcel_goes_there_and_back(
    store: int, life: int, number: int, payloads: list[bytes]
) -> None:
    messages: list[codec.AnyMessage] = [
        RemotePublish(b"a/b", payload, 1, "m") for payload in payloads
    ]
    raw = parcel_of((store, life, number), *messages)
    assert codec.count_of(raw) == len(messages)
    assert codec.decode_parcel(raw) == (codec.MessageBatch(store, life, number, messages), "")
    assert raw[codec.HEAD :] == b"".join(map(codec.encode, messages))


@given(st.integers(0, (1 << 62) - 1), st.booleans())
def test_a_parcel_is_addressed_when_it_leaves(target: int, hurries: bool) -> None:
    raw = codec.address(parcel_of((1, 2, 3), PUBLISH), target, hurries)
    assert codec.decode_parcel(raw) == (codec.MessageBatch(1, 2, 3, [PUBLISH], target, hurries), "")
    assert codec.count_of(raw) == 1
    torn = codec.address(parcel_of((1, 2, 3), Unknown()), target, hurries)
    assert codec.decode_parcel(torn)[0].hurries == hurries


def test_who_does_not_say_that_nobody_waits_is_answered_at_once() -> None:
    """As a node of an earlier version."""
    assert codec.decode_parcel(parcel_of((1, 2, 3), PUBLISH))[0].hurries


def test_what_is_no_parcel_counts_nothing() -> None:
    assert codec.count_of(b"") == codec.count_of(bytes(codec.HEAD - 1)) == 0


def test_fields_of_a_later_version_are_passed_over() -> None:
    fields = msgspec.msgpack.decode(codec.encode(PUBLISH))
    assert codec.decode(msgspec.msgpack.encode([*fields, "new"])) == PUBLISH


@pytest.mark.parametrize(
    ("store", "life", "number"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1 << 62)]
)
def test_a_place_out_of_bounds_is_refused(store: int, life: int, number: int) -> None:
    with pytest.raises(codec.WireError, match="no parcel: "):
        codec.decode_parcel(parcel_of((store, life, number), PUBLISH))


class Unknown(NodeMessage, frozen=True, tag=999):
    """What a later version may send."""


BAD = RemotePublish(b"a/#", b"", 0)


def test_a_message_is_checked() -> None:
    with pytest.raises(codec.WireError, match="no message: its topic"):
        codec.decode(codec.encode(BAD))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (RemotePublish(b"a/#", b"", 0, group="$share/g/a"), "its topic"),
        (RemotePublish(b"a", b"", 3), "QoS 3"),
        (Unknown(), "Invalid value"),
    ],
)
def test_a_parcel_goes_without_those_of_its_messages_that_are_none(
    bad: NodeMessage, why: str
) -> None:
    other = RemotePublish(b"c", b"", 0)
    parcel, fault = codec.decode_parcel(parcel_of((1, 2, 3), PUBLISH, bad, other, bad))
    assert parcel == codec.MessageBatch(1, 2, 3, [PUBLISH, other])
    assert fault.startswith(f"no message: {why}")


def test_the_topic_of_a_message_for_no_group_is_left_to_who_looks_it_up() -> None:
    assert codec.decode_parcel(parcel_of((1, 2, 3), BAD)) == (
        codec.MessageBatch(1, 2, 3, [BAD]),
        "",
    )


WHOLE = parcel_of((1, 1, 1), PUBLISH)


@given(
    st.binary(max_size=40)
    | st.builds(lambda cut: codec.encode(PUBLISH)[:cut], st.integers(0, 15))
    | st.builds(lambda cut: WHOLE[:cut], st.integers(0, len(WHOLE) - 1))
)
def test_other_bytes_are_refused_and_nothing_else_happens(raw: bytes) -> None:
    for attempt in (codec.decode, codec.decode_parcel):
        try:
            attempt(raw)
        except codec.WireError as error:
            assert str(error).startswith("no ")


def test_deep_nonsense_is_refused() -> None:
    with pytest.raises(codec.WireError):
        codec.decode_parcel(b"\x91" * 100_000)


def test_other_messages_are_another_version() -> None:
    """Before a release the table follows the messages; after one, whoever changes it raises `VERSIONS` as well."""
    said = {
        f"{kind.__module__.split('.')[0]} {kind.__struct_config__.tag}": " ".join(
            [kind.__name__, *(each.name for each in msgspec.structs.fields(kind) if each.required)]
        )
        for kind in (*get_args(messages.AnyMessage), *get_args(codec.AnyMessage))
    }
    table = Path(__file__).with_name("wire_of_version_1002.txt").read_text()
    assert codec.VERSIONS.speaks == 1002
    assert said == dict(line.split(": ", 1) for line in table.splitlines())
