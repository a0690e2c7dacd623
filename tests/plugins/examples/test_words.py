"""The plugin of the chat that hides words."""

from pathlib import Path

import pytest
from vmq_hooks import DeliverModifiers, Message
from vmq_hooks.testing import FakeBroker
from words import WordsConfig, WordsPlugin


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("darn", "****"),
        ("Darn it, DARN", "**** it, ****"),
        ("darning", None),
        ("fine", None),
        ("a.b darn", "*** ****"),
        ("axb", None),
    ],
)
async def test_words_become_stars(tmp_path: Path, text: str, shown: str | None) -> None:
    plugin = WordsPlugin()
    async with FakeBroker(tmp_path) as broker:
        await plugin.start(broker, WordsConfig(words=["darn", "a.b"]))
    found = plugin.on_deliver(Message("chat/room/say", text.encode()))
    assert found == (None if shown is None else DeliverModifiers(payload=shown.encode()))
    assert plugin.on_deliver(Message("sensors/1", text.encode())) is None


async def test_without_words_it_changes_nothing(tmp_path: Path) -> None:
    plugin = WordsPlugin()
    async with FakeBroker(tmp_path) as broker:
        await plugin.start(broker, WordsConfig())
    assert plugin.on_deliver(Message("chat/room/say", b"darn")) is None
