"""Who publishes what to whom."""

from typing import Final

from vmq.bench.flow import Flow
from vmq.bench.load.frames import LoadFrames, block_size
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.options import Scenario
from vmq.bench.load.publisher import LoadPublisher
from vmq.bench.load.subscriber import LoadSubscriber
from vmq.bench.stage import Stage

#: Each publisher has each subscriber.
_CROSSED: Final = frozenset({Scenario.FAN_IN, Scenario.FAN_OUT, Scenario.SUBSCRIBING})


def set_up_flow(stage: Stage) -> Flow:
    """Connects publishers and subscribers: each to each, or publisher i to subscriber i if there are as many."""
    options = stage.options
    latency = LatencyHistogram()
    publishers = make_publishers(stage)
    is_paired = options.scenario not in _CROSSED
    subscribers = [
        LoadSubscriber(
            stage.loop,
            stage.endpoint,
            stage.client_id("s", index),
            [publishers[index]] if is_paired else publishers,
            latency,
        )
        for index in range(options.subs)
    ]
    stage.connect([*subscribers, *publishers])
    filters = [
        f"{stage.prefix}/#"
        if options.scenario is Scenario.FAN_IN
        else filter_of(stage, index if is_paired else 0)
        for index in range(options.subs)
    ]
    stage.subscribe(list(zip(subscribers, filters, strict=True)), options.qos)
    return Flow(stage, publishers, subscribers, latency)


def topics_of(stage: Stage, index: int) -> list[str]:
    """The topics of a publisher. Those of all are of the same length."""
    base = base_of(stage, index)
    count = stage.options.topics
    if count == 1:
        return [f"{base}/d/t"]
    return [f"{base}/d/t{number:02}" for number in range(count)]


def filter_of(stage: Stage, index: int) -> str:
    """What has all topics of a publisher."""
    return (
        f"{base_of(stage, index)}/d/+" if stage.options.topics > 1 else topics_of(stage, index)[0]
    )


def base_of(stage: Stage, index: int) -> str:
    """What the topics of a publisher begin with."""
    width = len(str(stage.options.pubs - 1))
    return f"{stage.prefix}/p{index:0{width}}"


def make_publishers(stage: Stage) -> list[LoadPublisher]:
    """The publishers, with their messages."""
    options = stage.options
    length = len(topics_of(stage, 0)[0]) + options.size + 8
    per_block = block_size(length, options.pubs)
    return [
        LoadPublisher(
            stage.loop,
            stage.endpoint,
            stage.client_id("p", index),
            LoadFrames(
                [topic.encode() for topic in topics_of(stage, index)],
                index,
                options.size,
                options.qos,
                per_block,
            ),
        )
        for index in range(options.pubs)
    ]
