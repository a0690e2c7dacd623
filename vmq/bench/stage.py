"""What every scenario needs: a loop, an endpoint, connections that come and go, and the readings."""

import resource
import secrets
import time
from collections.abc import Sequence
from time import monotonic_ns
from types import TracebackType
from typing import Final, Self

from vmq.bench.control import Control
from vmq.bench.load.client import LoadClient
from vmq.bench.load.loop import BUFFER, Loop
from vmq.bench.load.options import BenchError, LoadOptions
from vmq.bench.load.transport import LoadEndpoint
from vmq.bench.load.usage import Usage, resident, usage_of
from vmq.bench.result import BrokerCost, LoaderCost, Result

#: Seconds between setting up and measuring: whatever the broker still does for those who came in is not measured.
SETTLE: Final = 0.2
#: Seconds that setting up may take.
_SETUP: Final = 60.0
_SAMPLE: Final = 200_000_000
#: Descriptors that are no connections.
_SPARE: Final = 64


class Stage:
    """The surroundings of one measurement; a context manager that closes every connection."""

    def __init__(self, options: LoadOptions, control: Control) -> None:
        self.options = options
        self.control = control
        self.loop = Loop(max(BUFFER, 4 * options.size))
        self.endpoint = LoadEndpoint(options.address, options.ca, options.insecure)
        self.clients: list[LoadClient] = []
        #: Of topics and client ids, so that two measurements of one broker do not meet.
        self.prefix = f"bench-{secrets.token_hex(2)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self.clients:
            client.close()
        self.loop.close()

    def client_id(self, role: str, index: int) -> str:
        """A client id of this measurement."""
        return f"{self.prefix}-{role}{index}"

    def connect(self, clients: Sequence[LoadClient]) -> None:
        """Connects all of them. Raises BenchError unless all succeed."""
        need_files(len(clients) + len(self.clients))
        self.clients += clients
        loop = self.loop
        before = loop.up
        wanted = before + len(clients)
        opened = 0
        deadline = Deadline(_SETUP)
        while loop.up < wanted:
            while opened < min(len(clients), loop.up - before + self.options.concurrency):
                clients[opened].open()
                opened += 1
            if loop.ended:
                raise BenchError(f"{self.options.address.url}: {loop.first_problem}")
            if deadline.is_over():
                raise BenchError(
                    f"{self.options.address.url}: only {loop.up} of {wanted} clients were let in"
                )
            loop.step(0.02)
            self.control.check()

    def subscribe(self, pairs: Sequence[tuple[LoadClient, str]], qos: int) -> None:
        """Has each client subscribe to a filter. Raises BenchError unless all of it is granted."""
        for client, topic_filter in pairs:
            client.subscribe(topic_filter, qos=qos)
        deadline = Deadline(_SETUP)
        waiting = [client for client, _ in pairs]
        while waiting := [client for client in waiting if client.asked]:
            if self.loop.ended or deadline.is_over():
                text = self.loop.first_problem or "subscriptions are not confirmed"
                raise BenchError(f"{self.options.address.url}: {text}")
            self.loop.step(0.02)
            self.control.check()
        self.check_granted([client for client, _ in pairs], qos)

    def check_granted(self, clients: Sequence[LoadClient], qos: int) -> None:
        """Raises BenchError unless the subscriptions that are confirmed are granted at this QoS."""
        granted = {code for client in clients for code in client.granted}
        if not granted <= {qos}:
            raise BenchError(
                f"{self.options.address.url}: subscriptions at QoS {qos} are granted as {sorted(granted)}"
            )

    def usage(self) -> Usage | None:
        """A reading of the broker's processes, if we know them."""
        if self.options.pid is None:
            return None
        try:
            return usage_of(self.options.pid)
        except OSError as problem:
            raise BenchError(
                f"cannot read the usage of process {self.options.pid}: {problem}"
            ) from None

    def new_result(self) -> Result:
        """A result with the options in it."""
        return Result(
            scenario=self.options.name or str(self.options.scenario), url=self.options.address.url
        )

    def finish(self, result: Result) -> None:
        """Puts in what the loop has seen."""
        result.protocol_errors = self.loop.protocol_errors
        result.disconnected = self.loop.ended
        result.first_problem = self.loop.first_problem


class Meter:
    """Reads broker and load generator at the begin and at the end of a measurement."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._broker = stage.usage()
        self._own = time.process_time()
        self._reads = stage.loop.reads
        self._writes = stage.loop.writes
        self._begun = monotonic_ns()
        self._peak = 0
        self._next_sample = self._begun + _SAMPLE

    def sample(self) -> None:
        """Looks at the broker's memory, now and then."""
        pid = self._stage.options.pid
        now = self._stage.loop.now
        if pid is not None and now > self._next_sample:
            self._next_sample = now + _SAMPLE
            self._peak = max(self._peak, resident(pid))

    def broker(self) -> BrokerCost | None:
        """What the broker has used since the begin."""
        now = self._stage.usage()
        if self._broker is None or now is None:
            return None
        return BrokerCost.between(self._broker, now, self._peak)

    def loader(self) -> LoaderCost:
        """What we have used since the begin."""
        own = time.process_time() - self._own
        elapsed = max((monotonic_ns() - self._begun) / 1e9, 1e-9)
        loop = self._stage.loop
        return LoaderCost(
            cpu_seconds=round(own, 4),
            cpu_share=round(own / elapsed, 3),
            reads=loop.reads - self._reads,
            writes=loop.writes - self._writes,
        )


class Deadline:
    """A point in time."""

    def __init__(self, seconds: float) -> None:
        self.at = monotonic_ns() + int(seconds * 1e9)

    def is_over(self) -> bool:
        """Whether it is past."""
        return monotonic_ns() > self.at


def need_files(count: int) -> None:
    """Raises the limit on open files as far as it goes. Raises BenchError if that is not enough."""
    needed = count + _SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            hard = soft  # macOS reports a hard limit that it does not accept
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise BenchError(f"{count} connections need {needed} open files; the limit is {hard}")
