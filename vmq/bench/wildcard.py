"""The wildcard scenario: messages in the midst of many filters that match none of them."""

from collections.abc import Sequence
from time import monotonic_ns
from typing import Final

from vmq.bench.load.client import LoadClient
from vmq.bench.load.options import BenchError
from vmq.bench.result import Result
from vmq.bench.stage import SETTLE, Deadline, Stage
from vmq.bench.wiring import base_of, set_up_flow

#: Filters of one SUBSCRIBE, and of those unconfirmed at one client.
_FILTERS: Final = 50
_AHEAD: Final = 100
_SETUP: Final = 120.0
_STEP: Final = 0.02


def run_wildcard(stage: Stage) -> Result:
    """Pairs, while others hold many filters with wildcards that match none of it."""
    options = stage.options
    flow = set_up_flow(stage)
    holders = [
        LoadClient(stage.loop, stage.endpoint, stage.client_id("w", index))
        for index in range(options.clients)
    ]
    stage.connect(holders)
    before = stage.usage()
    begun = monotonic_ns()
    hold_filters(stage, holders)
    seconds = (monotonic_ns() - begun) / 1e9
    after = stage.usage()
    stage.loop.run_for(SETTLE)
    flow.run()
    result = flow.finish()
    result.filters = options.wild_subs
    result.filter_rate = round(options.wild_subs / max(seconds, 1e-9), 1)
    if result.broker is not None and before is not None and after is not None and options.wild_subs:
        grown = after.rss - before.rss
        result.broker.bytes_per_filter = round(grown / options.wild_subs, 1)
    return result


def hold_filters(stage: Stage, holders: Sequence[LoadClient]) -> None:
    """Subscribes until all filters are confirmed."""
    total = stage.options.wild_subs
    begun = 0
    deadline = Deadline(_SETUP)
    while (confirmed := sum(len(each.granted) for each in holders)) < total:
        for holder in holders:
            while begun < total and holder.asked <= _AHEAD - _FILTERS:
                some = range(begun, min(begun + _FILTERS, total))
                holder.subscribe(
                    *(wild_filter(stage, number) for number in some), qos=stage.options.qos
                )
                begun = some.stop
        stage.loop.step(_STEP)
        stage.control.check()
        stage.control.tell("filters", confirmed, total)
        if stage.loop.ended:
            raise BenchError(f"after {confirmed} filters: {stage.loop.first_problem}")
        if deadline.is_over():
            raise BenchError(f"only {confirmed} of {total} filters in {_SETUP:.0f} s")
    stage.check_granted(holders, stage.options.qos)


def wild_filter(stage: Stage, number: int) -> str:
    """A filter that matches no topic of ours, but begins like one, so that a matcher has to look."""
    match number % 4:
        case 0:
            return f"{stage.prefix}/+/n{number}/#"
        case 1:
            return f"+/m{number}/+/t"
        case 2:
            return f"site{number}/+/d/#"
        case _:
            return f"{base_of(stage, number // 4 % stage.options.pubs)}/+/x{number}"
