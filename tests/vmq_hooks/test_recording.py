"""A session's trace is written down in a real broker and replayed through a plugin."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Message, Plugin, Refuse, hook
from vmq_hooks.testing import Recorder, ReplayError, read_trace, replay, running_broker

from tests.support.wire import connect_packet, publish_packet


class Lamps(Plugin):
    prefix = "lamps/"

    @hook
    def auth_on_register(self, username: str | None, password: bytes | None) -> Any:
        return True if password == b"secret" else Refuse("who?", bad_credentials=True)

    @hook
    def auth_on_publish(self, message: Message) -> Any:
        return True if message.topic.startswith(self.prefix) else Refuse("lamps only")


async def test_what_was_recorded_is_replayed(tmp_path: Path) -> None:
    lines: list[str] = []
    plugins = {"lamps": Recorder(Lamps(), lines)}
    async with running_broker(tmp_path, plugins) as broker, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(broker.host, broker.port)
        writer.write(connect_packet("c", username="u", password=b"secret"))
        assert await reader.readexactly(4) == b"\x20\x02\0\0"
        writer.write(publish_packet("lamps/1", b"\xff") + publish_packet("doors/1", b"x"))
        assert await reader.read() == b""
        writer.close()
    found = list(read_trace(lines))
    assert [(each.hook, each.verdict) for each in found] == [
        ("auth_on_register", "accept"),
        ("auth_on_publish", "accept"),
        ("auth_on_publish", "refuse"),
    ]
    assert found[1].arguments["message"] == Message("lamps/1", b"\xff")
    assert not any("secret" in line for line in lines)
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    assert await replay(Lamps(), trace) == 2
    changed = Lamps()
    changed.prefix = "doors/"
    with pytest.raises(ReplayError, match="call 1, auth_on_publish of c: refuse instead of accept"):
        await replay(changed, trace)


async def test_a_plugin_is_not_asked_what_it_does_not_implement() -> None:
    line = '{"hook": "on_client_gone", "arguments": {"subscriber_id": {"client_id": "c"}}}'
    assert await replay(Lamps(), [line, ""]) == 0


@pytest.mark.parametrize(
    "line",
    (
        "x",
        "{}",
        '{"hook": "on_sunrise", "arguments": {}}',
        '{"hook": "on_client_gone", "arguments": {}}',
    ),
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 of the trace"):
        list(read_trace(["", line]))
