"""One measurement, from options to result."""

from collections.abc import Callable
from typing import Final

from vmq.bench.connect import run_connect
from vmq.bench.control import Control
from vmq.bench.load.loop import quiet_memory
from vmq.bench.load.options import LoadOptions, Scenario
from vmq.bench.result import Result
from vmq.bench.retained import run_retained
from vmq.bench.stage import SETTLE, Stage
from vmq.bench.storm import run_storm
from vmq.bench.subscribing import run_subscribing
from vmq.bench.wildcard import run_wildcard
from vmq.bench.wiring import set_up_flow


def run(options: LoadOptions, control: Control | None = None) -> Result:
    """Makes one measurement.

    Raises:
        BenchError: the clients could not do what the scenario asks of them.
        Interrupted: the wish to stop came before there was anything to report.
    """
    with Stage(options, control or Control()) as stage, quiet_memory():
        return _SCENARIOS[options.scenario](stage)


def run_flow(stage: Stage) -> Result:
    """pair, fan-in, fan-out and ping-pong."""
    flow = set_up_flow(stage)
    stage.loop.run_for(SETTLE)
    flow.run()
    return flow.finish()


_SCENARIOS: Final[dict[Scenario, Callable[[Stage], Result]]] = {
    Scenario.PAIR: run_flow,
    Scenario.FAN_IN: run_flow,
    Scenario.FAN_OUT: run_flow,
    Scenario.PING_PONG: run_flow,
    Scenario.WILDCARD: run_wildcard,
    Scenario.CONNECT: run_connect,
    Scenario.RETAINED: run_retained,
    Scenario.STORM: run_storm,
    Scenario.SUBSCRIBING: run_subscribing,
}
