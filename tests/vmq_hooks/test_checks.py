"""What a plugin's own check says, in a test of the plugin."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from vmq_bridge import BridgePlugin, BridgesConfig
from vmq_hooks import Checking, Mistake, Plugin
from vmq_hooks.testing import FakeChecking, check


class Wants(Plugin):
    def check(self, broker: Checking, config: str) -> Iterator[Mistake]:
        if config == "text":
            yield "file"  # type: ignore[misc]  # what is no mistake
        broker.declare_stream("s", {"filters": ["a"]})
        if not (broker.config_dir / config).is_file():
            yield Mistake("file", "not there")
        elif config == "odd":
            raise ValueError("odd")


def test_mistakes_come_as_the_broker_reads_them(tmp_path: Path) -> None:
    (tmp_path / "odd").touch()
    (tmp_path / "even").touch()
    assert check(Wants(), "gone", tmp_path) == [Mistake("file", "not there")]
    assert check(Wants(), "odd", tmp_path) == [Mistake("", "odd")]
    assert check(Wants(), "even", tmp_path) == []
    with pytest.raises(TypeError, match=r"it gives 'file'; accepted: Mistake\(option, what\)"):
        check(Wants(), "text", tmp_path)
    broker = FakeChecking(tmp_path)
    assert list(Wants().check(broker, "even")) == []
    assert broker.streams == {"s": {"filters": ["a"]}}


@pytest.mark.parametrize("plugin", [Plugin(), BridgePlugin()])
def test_who_has_nothing_to_check_is_content(tmp_path: Path, plugin: Plugin) -> None:
    assert check(plugin, BridgesConfig(), tmp_path) == []
