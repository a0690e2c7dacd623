import socket
from collections.abc import AsyncIterator

import pytest

from vmq.config.options import Config
from vmq.config.overrides import LiveConfig
from vmq.runtime.share import Share
from vmq.workers import control

LIVE = (
    LiveConfig.of(Config())
    .with_option("queue.drop", "oldest", 12.5)
    .with_option("listeners.tcp.allowed_protocol_versions", "[4]", 13.0)
)
SHARE = Share(number=2, listeners=frozenset({"tcp"}), folder="/data/workers/2", plugins={"a": True})


class Pair:
    def __init__(self, one: control.Channel, raw: socket.socket) -> None:
        self.channel = one
        self.raw = raw


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    one, raw = socket.socketpair()
    channel = await control.Channel.over(one)
    yield Pair(channel, raw)
    await channel.close()
    raw.close()


@pytest.mark.parametrize(
    "message",
    [
        control.BeginWorker(control.WorkerSettings.of(LIVE), SHARE),
        control.Follow(control.WorkerSettings.of(LIVE)),
        control.WorkerReady(),
        control.WorkerFailed("no room"),
        control.Followed("no"),
        control.Alive(),
    ],
    ids=lambda message: type(message).__name__,
)
async def test_messages_arrive_as_they_were_sent(message: control.Message) -> None:
    ends = socket.socketpair()
    one, other = [await control.Channel.over(each) for each in ends]
    one.send(message)
    one.send(control.Alive())
    assert await other.receive() == message
    assert await other.receive() == control.Alive()
    await one.close()
    assert await other.receive() is None
    await other.close()


def test_settings_are_the_configuration_in_force_with_what_was_set_live() -> None:
    assert control.WorkerSettings.of(LIVE).live == LIVE


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x01\xc0",
        b"\x00\x00\x00\x09short",
    ],
    ids=["too long", "no msgpack", "no message", "cut off"],
)
async def test_nonsense_is_the_end(pair: Pair, data: bytes) -> None:
    pair.raw.sendall(data)
    pair.raw.shutdown(socket.SHUT_WR)
    assert await pair.channel.receive() is None
