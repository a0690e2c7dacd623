"""What MQTT packets are made of, for Hypothesis; and a naive twin of the decoder."""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st

from vmq.mqtt.packets import Connect

#: Text that MQTT allows: no surrogates, no U+0000 (section 1.5.3).
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)

#: Few letters, so that topics and filters meet. In the order of bytes a/b is between a- and a0.
WORDS = st.sampled_from(["", "a", "a-", "a0", "b", "$a", "ä", "\ufeff"])
TOPICS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=5).map("/".join).filter(bool),
    TEXT.filter(lambda text: bool(text) and not set(text) & set("+#")),
)

FILTERS = st.builds(
    lambda words, tail: "/".join(words + tail),
    st.lists(st.one_of(WORDS, st.just("+")), max_size=4),
    st.sampled_from([[], ["#"], ["+"]]),
).filter(bool)
SHARED = st.builds("$share/{}/{}".format, st.sampled_from(["g", "h", "$"]), FILTERS)
ANY_FILTER = st.one_of(FILTERS, FILTERS, SHARED)

PACKET_IDS = st.integers(1, 65535)
QOS = st.integers(0, 2)
PAYLOADS = st.one_of(
    st.binary(max_size=40),
    # Across the steps of the remaining length.
    st.sampled_from([100, 127, 128, 200, 16_380]).map(lambda size: b"\xa5" * size),
)


def draw_connect(draw: st.DrawFn, passwords: st.SearchStrategy[bytes]) -> Connect:
    """A CONNECT with or without a will, a user and a password."""
    connect = Connect()
    connect.clean_session = draw(st.booleans())
    connect.keep_alive = draw(st.integers(0, 65_535))
    if draw(st.booleans()):
        connect.has_will = True
        connect.will_topic = draw(TOPICS).encode()
        connect.will_payload = draw(PAYLOADS)
        connect.will_qos = draw(QOS)
        connect.will_retain = draw(st.booleans())
    if draw(st.booleans()):
        connect.username = draw(TEXT)
        if draw(st.booleans()):
            connect.password = draw(passwords)
    return connect


@dataclass(frozen=True)
class Found:
    """A packet as it stands in a stream."""

    head: int
    raw: bytes
    body: bytes


def naive_split(stream: bytes) -> tuple[list[Found], bytes]:
    """The whole packets of a stream of well-formed ones, and what is left of the last."""
    found: list[Found] = []
    while True:
        length, position, shift = 0, 1, 0
        while True:
            if position >= len(stream):
                return found, stream
            byte = stream[position]
            length += (byte & 127) * 2**shift
            shift += 7
            position += 1
            if byte < 128:
                break
        if position + length > len(stream):
            return found, stream
        raw = stream[: position + length]
        found.append(Found(stream[0], raw, raw[position:]))
        stream = stream[position + length :]


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """A stream in chunks that end at these places (taken modulo its length)."""
    ends = sorted({place % (len(stream) + 1) for place in places} | {0, len(stream)})
    return [stream[start:end] for start, end in pairwise(ends)]
