"""What has options that can be changed while it runs, as its users see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from vmq.config.options import Config
    from vmq.config.overrides import LiveConfig


class Settable(Protocol):
    """A broker or a supervisor: `vmq.config.configured.Configured`."""

    @property
    def config(self) -> Config: ...
    @property
    def live(self) -> LiveConfig: ...
    @property
    def on_change(self) -> Callable[[list[str]], None] | None: ...

    def set_option(self, key: str, text: str) -> list[str]: ...
    def reset_option(self, key: str) -> list[str]: ...
