"""`vmq pub` and `vmq sub` as programs, through a broker."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.vmq.cli.on_terminal import OnTerminal
from tests.vmq.cli.program import Program, here, run, subscribed
from vmq.testing.process import BrokerProcess

_numbers = count(1)


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"cli/{os.getpid()}/{next(_numbers)}"


@pytest.fixture
def address(broker: BrokerProcess) -> list[str]:
    host, port = broker.tcp
    return ["-h", host, "-p", str(port)]


@pytest.fixture(params=["tcp", "ws"])
def either(request: pytest.FixtureRequest, broker: BrokerProcess) -> list[str]:
    """The options that lead to the broker, over TCP and over WebSocket."""
    host, port = broker.tcp
    return ["-L", broker.ws if request.param == "ws" else f"mqtt://{host}:{port}"]


@pytest.fixture
def started() -> Iterator[ExitStack]:
    """Programs entered here end with the test."""
    with ExitStack() as stack:
        yield stack


def pub(address: list[str], topic: str, *arguments: str) -> None:
    """Publish, and expect that it works without a word."""
    assert here("pub", *address, "-t", topic, *arguments) == (0, b"", "")


def pub_program(
    address: list[str], topic: str, *arguments: str | bytes, stdin: bytes = b""
) -> None:
    assert run("pub", *address, "-t", topic, *arguments, stdin=stdin) == (0, b"", "")


def test_any_byte_survives_the_command_line(address: list[str], topic: str) -> None:
    payload = bytes(range(1, 256))
    with subscribed(*address, "-t", topic, "-C", "1", "-N") as sub:
        pub_program(address, topic, "-m", payload)
        assert sub.finish().out == payload


def test_what_comes_does_not_steer_a_terminal(
    address: list[str], topic: str, started: ExitStack
) -> None:
    """Topic and payload are escaped there, what the format itself says is not; a pipe gets every byte."""
    payload = b"h\xc3\xa4\x1b]0;owned\x07\n\xc2\x9b31m\xff"
    where = f"{topic}/\x1b[2J"
    # Retained: it comes whenever the program on the terminal has subscribed.
    pub_program(address, where, "-r", "-m", payload)
    wanted = ["sub", *address, "-t", f"{topic}/+", "-C", "1"]
    assert here(*wanted, "-v", "-N").out == where.encode() + b" " + payload
    ways = [["-v"], ["-F", r"\e[1m%t\e[0m %p"], ["-F", "%j"]]
    terminals = [started.enter_context(OnTerminal(*wanted, *how)) for how in ways]
    shown: list[tuple[bytes, ...]] = [
        (rb"\x1b[2J h" + "ä".encode() + rb"\x1b]0;owned\x07\n\x9b31m\xff",),
        (b"\x1b[1m",),
        (rb"\u001b[2J", rb"\u009b31m"),
    ]
    for sub, texts in zip(terminals, shown, strict=True):
        assert sub.end() == 0
        for text in texts:
            assert text in sub.out
        for raw in (b"\x1b[2J", b"\x1b]0;", b"\x07", b"\xc2\x9b", b"\xff"):
            assert raw not in sub.out


@pytest.mark.parametrize("qos", ["0", "2"])
def test_a_large_file_gets_there_whole(
    either: list[str], topic: str, qos: str, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(3_000_000))
    with subscribed(*either, "-t", topic, "-q", qos, "-C", "1", "-N") as sub:
        pub(either, topic, "-q", qos, "-f", str(path))
        assert sub.finish().out == path.read_bytes()


def test_all_of_stdin_is_one_message(address: list[str], topic: str) -> None:
    with subscribed(*address, "-t", topic, "-C", "1", "-N") as sub:
        pub_program(address, topic, "-s", stdin=b"one\n\xfftwo\n")
        assert sub.finish().out == b"one\n\xfftwo\n"


@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_lines_of_stdin_are_messages_in_order(address: list[str], topic: str, qos: str) -> None:
    text = b"".join(b"%d\n" % number for number in range(500)) + b"\nlast"
    with subscribed(*address, "-t", topic, "-q", qos, "-C", "502") as sub:
        pub_program(address, topic, "-l", "-q", qos, stdin=text)
        assert sub.finish().out == text + b"\n"


def test_a_line_is_published_when_it_comes(
    address: list[str], topic: str, started: ExitStack
) -> None:
    sub = started.enter_context(subscribed(*address, "-t", topic, "-C", "2"))
    source = started.enter_context(Program("pub", *address, "-t", topic, "-l"))
    source.stdin.write(b"first\n")
    source.stdin.flush()
    assert sub.wait_out("first")
    assert source.finish(b"second\n").code == 0
    assert sub.finish().out == b"first\nsecond\n"


def test_a_message_can_be_repeated(address: list[str], topic: str) -> None:
    with subscribed(*address, "-t", topic, "-C", "3") as sub:
        pub(address, topic, "-m", "again", "--repeat", "3", "--repeat-delay", "0.01")
        assert sub.finish().out == b"again\n" * 3


def test_an_empty_message_clears_a_retained_one(address: list[str], topic: str) -> None:
    pub(address, topic, "-q", "1", "-r", "-m", "kept")
    kept = here("sub", *address, "-t", topic, "-C", "1", "-F", "%r %p")
    assert kept.out == b"1 kept\n"
    pub(address, topic, "-q", "1", "-r", "-n")
    with subscribed(*address, "-t", topic, "-C", "1", "-v") as sub:
        pub(address, topic, "-n")
        assert sub.finish().out == topic.encode() + b" (null)\n"


def test_a_url_can_say_it_all(broker: BrokerProcess, topic: str) -> None:
    host, port = broker.tcp
    url = f"mqtt://{host}:{port}/{topic}"
    with subscribed("-L", url, "-C", "1") as sub:
        assert here("pub", "-L", url, "-m", "hello").code == 0
        assert sub.finish().out == b"hello\n"


def test_verbose_and_several_topics(address: list[str], topic: str) -> None:
    with subscribed(*address, "-t", f"{topic}/a", "-t", f"{topic}/+/b", "-v", "-C", "2") as sub:
        pub(address, f"{topic}/x", "-m", "no")
        pub(address, f"{topic}/a", "-m", "1")
        pub(address, f"{topic}/x/b", "-m", "2")
        assert sub.finish().out == f"{topic}/a 1\n{topic}/x/b 2\n".encode()


def test_a_payload_that_is_no_json_is_skipped_with_a_warning(
    address: list[str], topic: str
) -> None:
    with subscribed(*address, "-t", topic, "-C", "1", "-F", "%J") as sub:
        pub(address, topic, "-m", "no")
        pub(address, topic, "-m", "[1]")
        done = sub.finish()
    assert json.loads(done.out)["payload"] == [1]
    assert f"vmq: warning: the payload on {topic} is not JSON" in done.err


def test_topics_can_be_filtered_out(address: list[str], topic: str) -> None:
    with subscribed(
        *address, "-t", f"{topic}/#", "-T", f"{topic}/no/#", "-T", f"{topic}/x", "-C", "1"
    ) as sub:
        for word, text in (("no", "1"), ("no/way", "2"), ("x", "3"), ("yes", "4")):
            pub(address, f"{topic}/{word}", "-m", text)
        assert sub.finish().out == b"4\n"


def test_retained_messages_only_or_none_of_them(address: list[str], topic: str) -> None:
    pub(address, f"{topic}/old", "-q", "1", "-r", "-m", "old")
    with (
        subscribed(*address, "-t", f"{topic}/#", "-R", "-C", "1") as fresh,
        subscribed(*address, "-t", f"{topic}/#", "--retained-only") as kept,
    ):
        pub(address, f"{topic}/new", "-m", "new")
        assert fresh.finish().out == b"new\n"
        done = kept.finish()
    assert (done.code, done.out) == (0, b"old\n")


def test_unsubscribe_takes_a_topic_out_of_a_durable_session(address: list[str], topic: str) -> None:
    session = [*address, "-c", "-i", topic.replace("/", "-"), "-q", "1"]
    assert here("sub", *session, "-t", f"{topic}/a", "-t", f"{topic}/b", "-E").code == 0
    assert here("sub", *session, "-U", f"{topic}/a", "-E").code == 0
    pub(address, f"{topic}/a", "-q", "1", "-m", "a")
    pub(address, f"{topic}/b", "-q", "1", "-m", "b")
    done = here("sub", *session, "-t", f"{topic}/b", "-C", "1", "-W", "10")
    assert (done.code, done.out) == (0, b"b\n")


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_a_will_is_for_those_who_vanish(
    address: list[str], topic: str, ending: signal.Signals, started: ExitStack
) -> None:
    watcher = started.enter_context(subscribed(*address, "-t", f"{topic}/#", "-v", "-C", "1"))
    will = ["--will-topic", f"{topic}/will", "--will-payload", "gone", "--will-qos", "1"]
    mortal = started.enter_context(subscribed(*address, "-t", "unused", *will))
    mortal.signal(ending)
    mortal.finish()
    pub(address, f"{topic}/after", "-m", "last")
    said = watcher.finish().out.decode()
    assert said == (f"{topic}/will gone\n" if ending == signal.SIGKILL else f"{topic}/after last\n")


def test_a_timeout_ends_it_with_27(address: list[str], topic: str) -> None:
    done = run("sub", *address, "-t", topic, "-W", "0.2")
    assert (done.code, done.out, done.err) == (27, b"", "vmq: error: timed out\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_subscriber_well(
    address: list[str], topic: str, number: signal.Signals
) -> None:
    with subscribed(*address, "-t", topic) as sub:
        sub.signal(number)
        done = sub.finish()
    assert (done.code, done.out) == (0, b"")
    assert done.err.endswith("sent DISCONNECT\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_publisher_that_waits_for_input(
    address: list[str], topic: str, number: signal.Signals
) -> None:
    with Program("pub", *address, "-d", "-t", topic, "-q", "1", "-l") as source:
        source.stdin.write(b"one\n")
        source.stdin.flush()
        source.wait_err("received PUBACK")
        source.signal(number)
        source.process.wait(60)
        done = source.finish()
    assert done.code == 128 + number
    assert done.err.endswith("sent DISCONNECT\n")


def test_a_reader_that_goes_away_ends_a_subscriber_quietly(address: list[str], topic: str) -> None:
    with Program("sub", *address, "-d", "-t", topic, "-q", "1") as sub:
        sub.wait_err("received SUBACK")
        pub(address, topic, "-m", "1")
        assert sub.stdout.read(2) == b"1\n"
        sub.stdout.close()
        pub(address, topic, "-m", "2")
        assert sub.process.wait(60) == 141
        assert sub.wait_err("sent DISCONNECT")


def test_nobody_listens(topic: str) -> None:
    for command in (["pub", "-m", "x"], ["sub"]):
        done = here(*command, "-h", "127.0.0.1", "-p", "1", "-t", topic)
        assert (done.code, done.out) == (1, b"")
        assert done.err == (
            "vmq: error: cannot connect to mqtt://127.0.0.1:1: connection refused\n"
        )


def test_the_wrong_port_is_explained(broker: BrokerProcess, topic: str) -> None:
    host, port = broker.tcp
    done = here("pub", "-L", f"ws://{host}:{port}", "-t", topic, "-m", "x")
    assert done.code == 1
    assert done.err.startswith(f"vmq: error: cannot connect to ws://{host}:{port}/mqtt: ")
    assert len(done.err.splitlines()) == 1
