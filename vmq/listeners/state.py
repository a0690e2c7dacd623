"""What is known of an open listener, of whatever kind."""

from typing import Protocol

from vmq.config.values import Endpoint


class AnyListener(Protocol):
    """A listener as health, status and metrics see it."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def url(self) -> str:
        """Where it listens, with its real port."""

    @property
    def endpoint(self) -> Endpoint:
        """The address of the configuration."""

    @property
    def connections(self) -> int:
        """Open MQTT connections."""

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""

    @property
    def is_wanting(self) -> bool:
        """Whether somebody could not be let in lately, for want of files or memory."""

    def close(self) -> None:
        """Lets nobody in any more."""
