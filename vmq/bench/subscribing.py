"""The subscribing scenario: what clients that go on subscribing do to those who exchange messages."""

from time import monotonic_ns
from typing import Final

from vmq.bench.load.client import LoadClient
from vmq.bench.load.options import BenchError
from vmq.bench.result import Result
from vmq.bench.stage import SETTLE, Deadline, Stage
from vmq.bench.wildcard import wild_filter
from vmq.bench.wiring import set_up_flow

_STEP: Final = 0.02


class WildcardSubscribers:
    """Clients that subscribe in turn, each time to one filter with wildcards that matches none of the messages."""

    def __init__(self, stage: Stage, clients: list[LoadClient]) -> None:
        self._stage = stage
        self._clients = clients
        self._begun = monotonic_ns()
        #: SUBSCRIBEs sent.
        self.sent = 0

    def confirmed(self) -> int:
        """SUBACKs that came."""
        return sum(len(client.granted) for client in self._clients)

    def step(self) -> float:
        """Sends those that are due; returns the seconds until the next is."""
        rate = self._stage.options.sub_rate
        if not rate:
            return _STEP
        gone = (monotonic_ns() - self._begun) / 1e9
        while self.sent <= gone * rate:
            client = self._clients[self.sent % len(self._clients)]
            client.subscribe(wild_filter(self._stage, self.sent), qos=self._stage.options.qos)
            self.sent += 1
        return self.sent / rate - gone


def run_subscribing(stage: Stage) -> Result:
    """A fan-out while others subscribe. The broker's CPU a message has what these cost in it."""
    flow = set_up_flow(stage)
    clients = [
        LoadClient(stage.loop, stage.endpoint, stage.client_id("w", index))
        for index in range(stage.options.clients)
    ]
    stage.connect(clients)
    stage.loop.run_for(SETTLE)
    flow.beside = others = WildcardSubscribers(stage, clients)
    begun = monotonic_ns()
    flow.run()
    flow.beside = None
    deadline = Deadline(stage.options.stall)
    while others.confirmed() < others.sent and not stage.loop.ended:
        if deadline.is_over():
            raise BenchError(f"only {others.confirmed()} of {others.sent} filters are confirmed")
        stage.loop.step(_STEP)
    seconds = (monotonic_ns() - begun) / 1e9
    stage.check_granted(clients, stage.options.qos)
    result = flow.finish()
    result.filters = others.confirmed()
    result.filter_rate = round(result.filters / max(seconds, 1e-9), 1)
    return result
