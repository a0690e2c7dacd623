"""The streams of a broker, which are opened when they are first asked for: most brokers have none."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vmq.runtime.errors import StartError
from vmq.streams.serving.opening import load_libraries, open_streaming

if TYPE_CHECKING:
    from vmq.startup.whole import WholeBroker
    from vmq.streams.serving.service import Streaming


class BrokerStreams:
    """Opens them once for all who ask.

    Args:
        broker: whose they are.
    """

    def __init__(self, broker: "WholeBroker") -> None:
        self._broker = broker
        #: They themselves; None as long as there were never any.
        self.opened: Streaming | None = None

    def open(self) -> "Streaming":
        """The streams, those that only lie in the data directory too.

        Raises:
            StartError: a library is missing, or the folder cannot be used.
        """
        if self.opened is None:
            broker = self._broker
            core, committer = broker.parts.core, broker.parts.committer
            self.opened = open_streaming(core, broker.registry(), broker.config, committer)
            self.opened.sinks.add_jobs = broker.jobs.add_staged
            if broker.clustering is not None:
                broker.clustering.streams.attach(self.opened.catalog)
        return self.opened

    async def declare(self, name: str, options: Mapping[str, Any]) -> None:
        """Keeps a stream that a plugin wants; the first may be this broker's first stream at all."""
        if self._broker.share is not None:
            raise RuntimeError("streams are kept by one process; accepted: broker.workers = 1")
        try:
            await load_libraries()
            streams = self.open()
        except StartError as error:
            raise RuntimeError(str(error)) from error
        await streams.declare(name, options)
