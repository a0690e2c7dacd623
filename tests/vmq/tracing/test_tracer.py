"""A client is watched: its frames and the hooks about it, nobody else's, at a bounded rate."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Plugin, Refuse, hook

from tests.conftest import BrokerFactory
from tests.support import wire as mqtt
from tests.vmq.cli.program import Program, run
from tests.vmq.plugins.support import peer_of, serving
from vmq.tracing.tracer import LIMIT, Trace, TraceLimitError


class Guarded(Plugin):
    @hook
    async def auth_on_register(self) -> bool:
        return True

    @hook
    def auth_on_publish(self, message: Any) -> Any:
        return {"topic": "b"} if message.topic == "a" else Refuse("not here")


def texts(trace: Trace) -> list[str]:
    """The lines without their times."""
    found: list[str] = []
    while not trace.lines.empty():
        found += trace.lines.get_nowait().split("\n")
    return [line.partition("Z ")[2] or line for line in found]


async def test_frames_and_hooks_of_one_client_are_shown(tmp_path: Path) -> None:
    async with serving(tmp_path, {"guarded": Guarded()}, anonymous=False) as broker:
        core = broker.registry().core
        trace = Trace("c")
        broker.tracer.start(trace)
        async with peer_of(broker) as other, peer_of(broker) as peer:
            await other.connect("other", password=b"x", username="u")
            await peer.connect("c", username="u", password=b"secret")
            peer.send(mqtt.publish_packet("a", b"x"), mqtt.PINGREQ_BYTES)
            await peer.expect(mqtt.PINGRESP_BYTES)
            peer.send(mqtt.publish_packet("no", b"x"))
            assert await peer.rest() == b""
            lines = texts(trace)
            broker.tracer.stop(trace)
            assert core.traffic is not broker.tracer
            await other.ask(mqtt.PINGREQ_BYTES, mqtt.PINGRESP_BYTES)
    words = [line.rsplit(" ", 2)[0] if line.endswith(" ms") else line for line in lines]
    assert words[0].startswith("-> CONNECT level=4 client='c' user='u'")
    assert words[1:] == [
        "   auth_on_register accepted",
        "<- CONNACK code=0 session_present=0",
        "-> PUBLISH 'a' qos=0 retain=0 dup=0 bytes=1 'x'",
        "-> PINGREQ",
        words[5],
        "<- PINGRESP",
        "-> PUBLISH 'no' qos=0 retain=0 dup=0 bytes=1 'x'",
        '   auth_on_publish refused by guarded "not here"',
    ]
    assert words[5].startswith("   auth_on_publish changed PublishModifiers(topic='b'")
    assert not any("secret" in line or "other" in line for line in lines)


def test_above_its_rate_lines_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("vmq.tracing.tracer.time.time", lambda: now)
    trace = Trace("c", rate=3)
    for _ in range(2000):
        trace.say("x")
    lines = texts(trace)
    assert lines.count("x") == 3
    assert lines[3] == "(more than 3 lines a second: some are left out)"
    now += 1
    trace.say("y")
    assert texts(trace) == ["(1997 lines left out)", "y"]


async def test_traces_are_bounded(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        traces = [Trace("c") for _ in range(LIMIT)]
        for each in traces:
            broker.tracer.start(each)
        with pytest.raises(TraceLimitError):
            broker.tracer.start(Trace("c"))
        for each in traces:
            broker.tracer.stop(each)
        await asyncio.sleep(0)
        assert broker.registry().core.traffic is not broker.tracer


def test_the_command_shows_them_as_they_come(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker()
    command = ("trace", "client", "c", "--payload-bytes", "2", "--data-dir", str(broker.data_dir))
    with Program(*command) as program:
        program.wait_err("tracing c")
        wire = mqtt.Wire.connect_tcp(broker.tcp)
        wire.stream.sendall(mqtt.connect_packet("c") + mqtt.publish_packet("a", b"hello"))
        program.wait_out("-> CONNECT level=4 client='c'")
        program.wait_out("-> PUBLISH 'a' qos=0 retain=0 dup=0 bytes=5 'he'...")
        wire.stream.close()


def test_without_a_broker_the_command_says_so(tmp_path: Path) -> None:
    done = run("trace", "client", "c", "--data-dir", str(tmp_path))
    done.tells(1, "no broker runs")
