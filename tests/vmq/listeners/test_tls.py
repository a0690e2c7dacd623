"""The TLS layer by itself, with the client's side in memory."""

import ssl
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, connect_packet
from tests.vmq.support import House
from vmq.config.options import ListenerOptions
from vmq.core.cork import CLOSE
from vmq.listeners.certificates import build_context
from vmq.listeners.tls import INCOMING, MOST_ANSWERS, OUTGOING, PIECE, Tls, common_name
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext
from vmq.testing.authority import Authority


class Below:
    """The transport under the layer: keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True

    def get_extra_info(self, name: str) -> str:
        return f"{name} from below"


class Above:
    """What speaks inside."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.transport: Any = None
        #: What it holds back.
        self.corked = b""
        self.lost: list[Exception | None] = []
        #: What came before its peer's end is to be handled first.
        self.has_rest = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert data
        self.received.append(data)

    def send_corked(self) -> None:
        if self.corked:
            self.transport.write(self.corked)
        self.corked = b""

    def eof_received(self) -> bool:
        self.send_corked()
        return self.has_rest

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)

    def pause_writing(self) -> None:
        """It has nothing to write."""

    def resume_writing(self) -> None:
        """It has nothing to write."""


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


class Pair:
    """A layer and a client; also the owner that hears how the handshake ended."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.below = Below()
        self.above = Above()
        #: What speaks inside TLS.
        self.inside: Any = self.above
        self.identities: list[str | None] = []
        self.refusals: list[tuple[str, bool]] = []
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.layer = Tls(server, self, server.verify_mode is ssl.CERT_REQUIRED)
        self.layer.connection_made(self.below)

    def begun(self, _tls: Tls) -> None:
        """Its time is limited by the listener, which is not here."""

    def due(self, tls: Tls) -> None:
        tls.go_on()

    def secured(self, _tls: Tls, identity: str | None) -> Any:
        self.identities.append(identity)
        return self.inside

    def refused(self, _layer: Any, reason: str, expected: bool = False) -> None:
        self.refusals.append((reason, expected))

    def to_client(self) -> None:
        self.incoming.write(b"".join(self.below.written))
        self.below.written.clear()

    def shake_hands(self) -> None:
        for _ in range(10):
            self.to_client()
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.layer.data_received(self.outgoing.read())
                continue
            self.layer.data_received(self.outgoing.read())
            return

    def sent(self, data: bytes) -> bytes:
        self.client.write(data)
        return self.outgoing.read()

    def read(self, size: int) -> bytes:
        self.to_client()
        data = bytearray()
        while len(data) < size:
            data += self.client.read(65_536)
        return bytes(data)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    server = authority.issue("localhost", ["localhost"])
    options = ListenerOptions(
        url="tls://127.0.0.1:0", certfile=str(server.certfile), keyfile=str(server.keyfile)
    )
    return build_context(options, "mqtt"), authority.client_context()


@pytest.fixture
def pair(contexts: Contexts) -> Pair:
    made = Pair(*contexts)
    made.shake_hands()
    assert made.above.transport is made.layer
    assert made.identities == [None]
    return made


@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 400), max_size=40),
)
def test_what_has_come_whole_waits_for_nothing_behind_it(
    contexts: Contexts, sizes: list[int], cuts: list[int]
) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    sent = [bytes([number]) * size for number, size in enumerate(sizes)]
    records = [pair.sent(data) for data in sent]
    stream = b"".join(records)
    ends = [sum(map(len, records[: number + 1])) for number in range(len(records))]
    at = 0
    for cut in [*cuts, len(stream)]:
        pair.layer.data_received(stream[at : at + cut])
        at = min(at + cut, len(stream))
        whole = sum(end <= at for end in ends)
        assert b"".join(pair.above.received) == b"".join(sent[:whole])
        if at == len(stream):
            break


@given(st.lists(st.binary(min_size=1, max_size=3 * PIECE), max_size=4), st.integers(1, 100_000))
def test_any_data_arrives_whole_and_in_order_both_ways(
    contexts: Contexts, datas: list[bytes], size: int
) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    wire = b"".join(pair.sent(data) for data in datas)
    for start in range(0, len(wire), size):
        pair.layer.data_received(wire[start : start + size])
    assert b"".join(pair.above.received) == b"".join(datas)
    for data in datas:
        pair.layer.write(data)
    whole = b"".join(datas)
    assert pair.read(len(whole)) == whole


def test_data_that_comes_with_the_end_of_the_handshake_is_not_lost(contexts: Contexts) -> None:
    pair = Pair(*contexts)
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.do_handshake()
    pair.layer.data_received(pair.outgoing.read())
    pair.to_client()
    pair.client.do_handshake()  # TLS 1.3: done, with the last flight still to send
    pair.layer.data_received(pair.outgoing.read() + pair.sent(b"early"))
    assert pair.above.received == [b"early"]


def test_the_peer_ends_properly(pair: Pair) -> None:
    last = pair.sent(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.layer.data_received(last + pair.outgoing.read())
    assert pair.above.received == [b"last"]
    assert pair.below.closed
    pair.layer.connection_lost(None)
    assert pair.above.lost == [None]


def test_a_peer_that_ends_has_what_is_held_back_for_it(pair: Pair) -> None:
    pair.above.corked = b"held back"
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.layer.data_received(pair.outgoing.read())
    assert pair.read(9) == b"held back"
    assert pair.below.closed


def test_a_peer_that_ends_improperly_has_it_too(pair: Pair) -> None:
    pair.above.corked = b"held back"
    assert not pair.layer.eof_received(), "the transport closes itself now"
    assert pair.read(9) == b"held back"


def test_a_peer_that_ends_is_kept_until_what_it_sent_is_handled(pair: Pair) -> None:
    pair.above.has_rest = True
    last = pair.sent(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    pair.layer.data_received(last + pair.outgoing.read())
    assert pair.layer.eof_received(), "the transport stays open"
    was_closed = pair.below.closed
    pair.layer.write(b"an answer")
    pair.layer.close()
    assert (was_closed, pair.below.closed) == (False, True)
    assert pair.read(9) == b"an answer"


def test_what_is_held_back_together_is_one_record(contexts: Contexts, house: House) -> None:
    house.core.cork.close = CLOSE
    house.patient = True
    pair = Pair(*contexts)
    listener = ListenerContext(print, print)
    pair.inside = Connection(house.registry, True, "auto-1", listener)
    pair.shake_hands()
    pair.to_client()
    pair.layer.data_received(pair.sent(connect_packet("c")))
    assert pair.read(4) == b"\x20\x02\0\0"
    for _ in range(5):
        pair.layer.data_received(pair.sent(PINGREQ_BYTES))
    assert pair.below.written == []
    house.turn()
    assert len(pair.below.written) == 1
    pair.to_client()
    assert pair.client.read(65_536) == PINGRESP_BYTES * 5, "a record is read by itself"


def test_a_close_says_so_and_nothing_is_written_after_it(pair: Pair) -> None:
    pair.layer.write(b"bye")
    pair.layer.close()
    assert pair.below.closed
    pair.layer.write(b"too late")
    assert pair.read(3) == b"bye"
    assert pair.client.read(1) == b""  # the close_notify; without it this raises


def test_broken_ciphertext_ends_the_connection_with_its_reason(pair: Pair) -> None:
    wire = bytearray(pair.sent(b"good") + pair.sent(b"x" * 50))
    wire[-1] ^= 1
    pair.layer.data_received(bytes(wire))
    assert pair.above.received == [b"good"]
    assert pair.below.closed
    pair.layer.data_received(b"more")
    pair.layer.connection_lost(None)
    assert "TLS failed: decryption failed or bad record mac" in str(pair.above.lost[0])


def test_who_asks_for_new_keys_and_takes_none_is_left(pair: Pair) -> None:
    """As with KeyUpdate of TLS 1.3, which Python's own client cannot send."""

    class Asked:
        """What reads such a record."""

        def read(self, _size: int) -> bytes:
            INCOMING.read()
            OUTGOING.write(bytes(MOST_ANSWERS // 4))
            raise ssl.SSLWantReadError

    pair.layer.openssl = Asked()
    left = []
    for asks, is_blocked in ((8, False), (4, True), (0, False), (4, True), (1, True)):
        if is_blocked:
            pair.layer.pause_writing()
        else:
            pair.layer.resume_writing()
        for _ in range(asks):
            pair.layer.data_received(b"ask")
        left.append(pair.below.aborted)
    assert left == [False, False, False, False, True]
    pair.layer.connection_lost(None)
    assert "new keys are asked for and not taken" in str(pair.above.lost[0])


def test_a_peer_that_leaves_in_the_handshake_is_nothing_to_write_of(contexts: Contexts) -> None:
    pair = Pair(*contexts)
    pair.layer.data_received(b"\x16\x03\x01")
    pair.layer.connection_lost(None)
    assert pair.refusals == [("connection lost in the TLS handshake", True)]
    assert pair.above.transport is None


@given(st.binary(max_size=2000) | st.binary(max_size=500).map(b"\x16\x03\x01\x01\xf4\x01".__add__))
def test_any_bytes_instead_of_a_handshake_harm_nobody(contexts: Contexts, data: bytes) -> None:
    pair = Pair(*contexts)
    pair.layer.data_received(data)
    pair.layer.data_received(data)
    assert len(pair.refusals) <= 1
    assert bool(pair.refusals) == pair.below.closed
    pair.layer.connection_lost(None)
    assert len(pair.refusals) == (0 if pair.identities else 1)


@given(st.binary(max_size=2000))
def test_any_bytes_after_the_handshake_harm_nobody(contexts: Contexts, data: bytes) -> None:
    pair = Pair(*contexts)
    pair.shake_hands()
    pair.layer.data_received(data)
    pair.layer.write(b"x")
    pair.layer.close()
    assert not pair.above.received


def test_facts_of_the_transport_below_are_handed_up(pair: Pair) -> None:
    assert pair.layer.get_extra_info("peername") == "peername from below"


@pytest.mark.parametrize(
    ("certificate", "verdict"),
    [
        ({"subject": ((("commonName", "device 7"),),)}, "device 7"),
        ({"subject": ((("organizationName", "x"),), (("commonName", "ö"),))}, "ö"),
        ({"subject": ((("commonName", "a"), ("commonName", "b")),)}, None),
        ({"subject": ((("commonName", ""),),)}, None),
        ({"subject": ((("commonName", "a\0b"),),)}, None),
        ({"subject": ((("commonName", "a\nb"),),)}, None),
        ({"subject": ((("commonName", "x" * 65_536),),)}, None),
        ({"subject": ()}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_common_name_is_one_and_can_be_a_user_name(
    certificate: dict[str, object] | None, verdict: str | None
) -> None:
    if verdict is None:
        with pytest.raises(ValueError, match="common name"):
            common_name(certificate)
    else:
        assert common_name(certificate) == verdict


def test_connections_whose_records_come_in_pieces_do_not_mix(contexts: Contexts) -> None:
    pairs = [Pair(*contexts) for _ in range(3)]
    for pair in pairs:
        pair.shake_hands()
    sent = [b"%d" % number * 50_000 for number in range(3)]
    streams = [pair.sent(data) for pair, data in zip(pairs, sent, strict=True)]
    for start in range(0, max(map(len, streams)), 1000):
        for pair, stream in zip(pairs, streams, strict=True):
            pair.layer.data_received(stream[start : start + 1000])
            pair.layer.write(stream[start : start + 10])
    for pair, data, stream in zip(pairs, sent, streams, strict=True):
        assert b"".join(pair.above.received) == data
        echo = b"".join(stream[start : start + 10] for start in range(0, len(stream), 1000))
        assert pair.read(len(echo)) == echo


def test_what_a_failing_connection_leaves_behind_reaches_no_other(contexts: Contexts) -> None:
    good, bad, raising = (Pair(*contexts) for _ in range(3))
    for pair in (good, bad, raising):
        pair.shake_hands()
    first = bad.sent(b"x")
    bad.layer.data_received(first[:-1] + bytes((first[-1] ^ 1,)) + bad.sent(b"y") * 3)
    assert bad.layer.broken is not None

    def fail(_data: bytes) -> None:
        raise RuntimeError("of our own making")

    raising.above.data_received = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError):
        raising.layer.data_received(raising.sent(b"z") + b"\x17\x03\x03")
    fresh = Pair(*contexts)
    fresh.shake_hands()
    for pair in (good, fresh):
        pair.layer.data_received(pair.sent(b"hello"))
        assert b"".join(pair.above.received) == b"hello"
        pair.layer.write(b"answer")
        assert pair.read(6) == b"answer"
