"""Calling the check of one plugin, as the broker would."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vmq_hooks.broker import Mistake
from vmq_hooks.plugin import Plugin, mistakes_of


class FakeChecking:
    """The broker as `Plugin.check` receives it; its folder of the configuration is the test's.

    Args:
        folder: config_dir.
    """

    def __init__(self, folder: Path) -> None:
        self.config_dir = folder
        #: The streams that the plugin says it will declare, and their options.
        self.streams: dict[str, Mapping[str, Any]] = {}

    def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        self.streams[name] = options


def check(plugin: Plugin, config: Any, folder: Path) -> list[Mistake]:
    """What would keep the plugin from starting with this configuration, as the broker would read it."""
    return mistakes_of(plugin, FakeChecking(folder), config)
