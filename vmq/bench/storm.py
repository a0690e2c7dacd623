"""The storm scenario: what a crowd that comes in at once does to those who exchange messages."""

from typing import Final

from vmq.bench.connect import Crowd
from vmq.bench.result import Latency, Result
from vmq.bench.stage import SETTLE, Deadline, Stage
from vmq.bench.wiring import set_up_flow

#: Connections begun before the measured clients have their turn again: opening one takes some 50 µs.
_AT_ONCE: Final = 4
_STEP: Final = 0.02


def run_storm(stage: Stage) -> Result:
    """A measured flow, first alone, then while a crowd connects."""
    options = stage.options
    control = stage.control
    flow = set_up_flow(stage)
    crowd = Crowd(stage, options.clients, options.concurrency)
    stage.loop.run_for(SETTLE)
    flow.begin()
    quiet, longest = Deadline(options.quiet), Deadline(options.quiet + options.stall)
    # Without one message there is nothing to compare with: the first is waited for, as long as a stall may last.
    while not control.is_stopping and not longest.is_over():
        if quiet.is_over() and flow.latency.count:
            break
        flow.step()
    before = Latency.of(flow.latency)
    flow.reset()
    deadline = Deadline(options.seconds)
    crowd.begin()
    while not crowd.is_done() and not deadline.is_over() and not control.is_stopping:
        crowd.open_some(_AT_ONCE)
        flow.step(0 if crowd.may_open() else _STEP)
        control.tell("connections", crowd.came, options.clients)
    if control.is_stopping:
        flow.end = "interrupted"
    elif not crowd.is_done():
        flow.end = "time"
    during = Latency.of(flow.latency)
    connects = crowd.connects()
    flow.drain()
    result = flow.finish()
    result.connects = connects
    result.latency_us, result.quiet_latency_us = during, before
    if result.broker is not None and crowd.came:
        result.broker.cpu_us_per_message = None  # it is the crowd that costs
        result.broker.cpu_us_per_connection = round(result.broker.cpu_seconds * 1e6 / crowd.came, 1)
        grown = result.broker.rss_end - result.broker.rss_start
        result.broker.bytes_per_connection = round(grown / crowd.came, 1)
    return result
