"""The listeners of a process that are open: each is opened and closed by its name in the configuration."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Generic, TypeVar

from vmq.config.options import ListenerOptions
from vmq.listeners.certificates import CertificateError
from vmq.listeners.state import AnyListener
from vmq.runtime.errors import StartError
from vmq.runtime.health import problem_of

L = TypeVar("L", bound=AnyListener)


class OpenListeners(Mapping[str, L], Generic[L]):
    """By name, in the order in which they were opened.

    Args:
        open_one: opens a listener of the configuration, whatever it speaks.
    """

    def __init__(self, open_one: Callable[[str, ListenerOptions], Awaitable[L]]) -> None:
        self._open_one = open_one
        self._open: dict[str, L] = {}
        #: Closed ones whose connections may go on.
        self._closed: list[L] = []

    def __getitem__(self, name: str) -> L:
        return self._open[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    async def open(self, name: str, options: ListenerOptions) -> None:
        """Opens a listener of the configuration.

        Raises:
            StartError: its address or its certificates cannot be had.
        """
        try:
            self._open[name] = await self._open_one(name, options)
        except OSError as error:
            raise not_to_be_had(name, options, error) from error
        except CertificateError as error:
            raise StartError(f"listeners.{name}.{error}") from error

    def close(self, name: str) -> L:
        """Closes a listener, and returns it; connections that came through it stay."""
        listener = self._open.pop(name)
        listener.close()
        # Their number still counts.
        self._closed = [each for each in self._closed if each.connections]
        self._closed.append(listener)
        return listener

    def problems(self) -> list[str]:
        """Which of them do not accept."""
        return [problem for each in self.values() if (problem := problem_of(each))]

    def connections(self) -> dict[str, int]:
        """Open MQTT connections by kind of listener."""
        counts: dict[str, int] = {}
        for each in (*self.values(), *self._closed):
            is_web = each.endpoint.is_websocket or each.endpoint.scheme == "http"
            kind = "mqttws" if is_web else "mqtt"
            counts[kind] = counts.get(kind, 0) + each.connections
        return counts


def not_to_be_had(name: str, options: ListenerOptions, error: OSError) -> StartError:
    """Why a listener cannot have its address."""
    reason = error.strerror or error
    return StartError(f"listeners.{name}: cannot listen on {options.url}: {reason}")
