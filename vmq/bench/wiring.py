"""Who publishes what to whom."""

from vmq.bench.flow import Flow
from vmq.bench.load.frames import LoadFrames, block_size
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.options import Scenario
from vmq.bench.load.publisher import LoadPublisher
from vmq.bench.load.subscriber import LoadSubscriber
from vmq.bench.stage import Stage


def set_up_flow(stage: Stage) -> Flow:
    """Connects publishers and subscribers: each to each, or publisher i to subscriber i if there are as many."""
    options = stage.options
    latency = LatencyHistogram()
    publishers = make_publishers(stage)
    is_paired = options.scenario not in {Scenario.FAN_IN, Scenario.FAN_OUT}
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
        else topic_of(stage, index if is_paired else 0)
        for index in range(options.subs)
    ]
    stage.subscribe(list(zip(subscribers, filters, strict=True)), options.qos)
    return Flow(stage, publishers, subscribers, latency)


def topic_of(stage: Stage, index: int) -> str:
    """The topic of a publisher. All are of the same length."""
    width = len(str(stage.options.pubs - 1))
    return f"{stage.prefix}/p{index:0{width}}/d/t"


def make_publishers(stage: Stage) -> list[LoadPublisher]:
    """The publishers, with their messages."""
    options = stage.options
    length = len(topic_of(stage, 0)) + options.size + 8
    per_block = block_size(length, options.pubs)
    return [
        LoadPublisher(
            stage.loop,
            stage.endpoint,
            stage.client_id("p", index),
            LoadFrames(
                topic_of(stage, index).encode(), index, options.size, options.qos, per_block
            ),
        )
        for index in range(options.pubs)
    ]
