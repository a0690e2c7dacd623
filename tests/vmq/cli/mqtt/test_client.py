"""`vmq pub` and `vmq sub` against a broker that misbehaves, vanishes or comes back: packet by packet."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support import wire as mqtt
from tests.vmq.cli.fake_broker import FakeBroker
from tests.vmq.cli.program import Program, here

DURABLE = ["-t", "t", "-q", "2", "-c", "-i", "me"]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as fake:
        yield fake


def sub(broker: FakeBroker, *arguments: str) -> Program:
    return Program("sub", "-h", "127.0.0.1", "-p", broker.port, *arguments)


def pub(broker: FakeBroker, *arguments: str) -> Program:
    return Program("pub", "-h", "127.0.0.1", "-p", broker.port, "-t", "t", *arguments)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (1, "unacceptable protocol version"),
        (2, "client id rejected"),
        (3, "server unavailable"),
        (4, "bad user name or password"),
        (5, "not authorized"),
        (77, "unknown reason"),
    ],
)
def test_a_refusal_is_told_with_its_code(broker: FakeBroker, code: int, reason: str) -> None:
    url = f"mqtt://127.0.0.1:{broker.port}"
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(broker.accept_client, code)
        done = here("pub", "-L", url, "-t", "t", "-m", "x")
        serving.result()
    assert done.code == 1
    assert done.err == f"vmq: error: refused by {url}: {reason} (CONNACK code {code})\n"


def test_everything_that_connect_carries(broker: FakeBroker) -> None:
    url = f"mqtt://ann:s%3At@127.0.0.1:{broker.port}/t"
    will = ["--will-topic", "w", "--will-payload", "x", "--will-qos", "2", "--will-retain"]
    with Program("sub", "-L", url, "-i", "me", "-k", "7", "-c", *will) as program:
        _, connect = broker.accept_client(code=4)
        program.finish()
    flags = 0x80 | 0x40 | 0x20 | 2 << 3 | 0x04
    assert connect.body == (b"\0\4MQTT\4" + bytes([flags]) + b"\0\7\0\2me\0\1w\0\1x\0\3ann\0\3s:t")


def test_a_clean_session_is_the_default(broker: FakeBroker) -> None:
    with pub(broker, "-m", "x", "-i", "") as program:
        wire, connect = broker.accept_client()
        wire.expect_publish("t", b"x")
        wire.expect(mqtt.DISCONNECT_BYTES)
        assert program.finish().code == 0
    assert connect.body == b"\0\4MQTT\4\2\0\x3c\0\0"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x20"])
def test_a_server_that_speaks_something_else(broker: FakeBroker, answer: bytes) -> None:
    with pub(broker, "-m", "x") as program:
        wire = broker.accept()
        wire.recv_packet()
        wire.send(answer)
        wire.close()
        done = program.finish()
    assert done.code == 1
    assert done.err.startswith(f"vmq: error: cannot connect to mqtt://127.0.0.1:{broker.port}: ")
    assert len(done.err.splitlines()) == 1


def test_qos_2_goes_by_the_book(broker: FakeBroker) -> None:
    with pub(broker, "-q", "2", "-r", "-m", "x") as program:
        wire, _ = broker.accept_client()
        packet_id = wire.expect_publish("t", b"x", qos=2, dup=False, retain=True).packet_id
        wire.ask(mqtt.pubrec_packet(packet_id), mqtt.pubrel_packet(packet_id))
        wire.ask(mqtt.pubcomp_packet(packet_id), mqtt.DISCONNECT_BYTES)
        assert program.finish().code == 0


def test_at_most_20_messages_await_their_acknowledgement(broker: FakeBroker) -> None:
    with pub(broker, "-q", "1", "-l") as program:
        wire, _ = broker.accept_client()
        program.stdin.write(b"".join(b"%d\n" % number for number in range(30)))
        program.stdin.flush()
        first = [wire.expect_publish("t", b"%d" % number) for number in range(20)]
        wire.send(mqtt.puback_packet(first[0].packet_id))
        wire.expect_publish("t", b"20")


@pytest.mark.parametrize("qos", ["1", "2"])
def test_a_connection_lost_before_the_acknowledgement_is_an_error(
    broker: FakeBroker, qos: str
) -> None:
    with pub(broker, "-q", qos, "-m", "x") as program:
        wire, _ = broker.accept_client()
        wire.expect(mqtt.PUBLISH)
        wire.close()
        done = program.finish()
    url = f"mqtt://127.0.0.1:{broker.port}"
    assert (done.code, done.err) == (1, f"vmq: error: the connection to {url} was lost\n")


def test_a_connection_lost_while_no_line_comes_is_noticed(broker: FakeBroker) -> None:
    with pub(broker, "-l") as program:
        wire, _ = broker.accept_client()
        wire.close()
        assert program.process.wait(60) == 1
        program.wait_err("was lost")


def test_a_refused_subscription_is_an_error(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t") as program:
        wire, _ = broker.accept_client()
        wire.send(mqtt.packet(0x90, wire.recv_packet().body[:2] + b"\x80"))
        done = program.finish()
    assert done.code == 1
    assert done.err == "vmq: error: the broker refuses to subscribe us to t\n"


def test_a_connection_lost_before_the_suback_is_made_anew(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t", "-C", "1") as program:
        wire, _ = broker.accept_client()
        wire.expect(mqtt.SUBSCRIBE)
        wire.close()
        broker.accept_subscriber().send(mqtt.publish_packet("t", b"x"))
        assert program.finish().out == b"x\n"


def test_one_of_several_refused_is_a_warning(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t", "-t", "u", "-C", "1") as program:
        wire, _ = broker.accept_client()
        wire.send(mqtt.packet(0x90, wire.recv_packet().body[:2] + b"\x00\x80"))
        program.wait_err("vmq: warning: the broker refuses to subscribe us to u")
        wire.send(mqtt.publish_packet("t", b"x"))
        assert program.finish().code == 0


def test_what_is_not_printed_is_not_acknowledged(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t", "-q", "1", "-c", "-i", "me", "-C", "1") as program:
        wire = broker.accept_subscriber()
        wire.send(
            mqtt.publish_packet("t", b"1", qos=1, packet_id=1),
            mqtt.publish_packet("t", b"2", qos=1, packet_id=2),
        )
        wire.expect(mqtt.puback_packet(1))
        wire.expect(mqtt.DISCONNECT_BYTES)
        assert program.finish().out == b"1\n"


def test_a_qos_2_message_is_printed_once_over_two_connections(broker: FakeBroker) -> None:
    message = mqtt.publish_packet("t", b"once", qos=2, packet_id=1)
    with sub(broker, *DURABLE, "-C", "2") as program:
        wire = broker.accept_subscriber()
        wire.ask(message, mqtt.pubrec_packet(1))
        wire.close()
        wire = broker.accept_subscriber(session_present=1)
        wire.send(mqtt.publish_packet("t", b"once", qos=2, packet_id=1, dup=True))
        wire.expect(mqtt.pubrec_packet(1))
        wire.ask(mqtt.pubrel_packet(1), mqtt.pubcomp_packet(1))
        wire.ask(mqtt.publish_packet("t", b"twice", qos=2, packet_id=1), mqtt.pubrec_packet(1))
        assert program.finish().out == b"once\ntwice\n"


def test_packet_ids_of_a_lost_session_mean_nothing(broker: FakeBroker) -> None:
    with sub(broker, *DURABLE, "-C", "2") as program:
        wire = broker.accept_subscriber()
        wire.ask(mqtt.publish_packet("t", b"1", qos=2, packet_id=1), mqtt.pubrec_packet(1))
        wire.close()
        wire = broker.accept_subscriber(session_present=0)
        wire.send(mqtt.publish_packet("t", b"2", qos=2, packet_id=1))
        assert program.finish().out == b"1\n2\n"


def test_a_release_of_an_earlier_process_is_answered(broker: FakeBroker) -> None:
    with sub(broker, *DURABLE):
        wire = broker.accept_subscriber(session_present=1)
        wire.ask(mqtt.pubrel_packet(9), mqtt.pubcomp_packet(9))


def test_messages_may_come_before_the_suback(broker: FakeBroker) -> None:
    with sub(broker, *DURABLE, "-C", "1") as program:
        wire, _ = broker.accept_client(session_present=1)
        wire.send(mqtt.publish_packet("t", b"early"))
        assert program.finish().out == b"early\n"


def test_a_subscriber_comes_back(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t", "-C", "1") as program:
        broker.accept_subscriber().close()
        program.wait_err(r"vmq: warning: .* was lost; trying again in 1 s")
        broker.accept_subscriber().send(mqtt.publish_packet("t", b"back"))
        assert program.finish().out == b"back\n"


def test_a_broker_that_does_not_answer_pings_is_given_up(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t", "-k", "1") as program:
        wire = broker.accept_subscriber()
        wire.expect(mqtt.PINGREQ_BYTES)
        program.wait_err("was lost; trying again")
        broker.accept_subscriber()


def test_pings_keep_a_quiet_connection(broker: FakeBroker) -> None:
    with sub(broker, "-t", "t", "-k", "1", "-C", "1") as program:
        wire = broker.accept_subscriber()
        for _ in range(3):
            wire.expect(mqtt.PINGREQ_BYTES)
            wire.send(b"\xd0\0")
        wire.ask(mqtt.publish_packet("t", b"x"), mqtt.DISCONNECT)
        done = program.finish()
    assert (done.out, done.err) == (b"x\n", "")
