"""The figures of streams of which one node has each partition."""

from collections.abc import Iterator, Mapping

from vmq.runtime.metrics import Family, Sample


def stream_families(
    owned: Mapping[str, int], sent: Mapping[str, int], moved: int, given_up: int
) -> Iterator[Family]:
    """By stream, the partitions that the node owns and the messages that it sent to others; and how they moved."""
    text = "Partitions that this node owns."
    yield Family("cluster_stream_partitions", "gauge", text, _samples(owned))
    text = "Messages that were sent to the owners of their partitions on other nodes."
    yield Family("cluster_stream_messages_sent", "counter", text, _samples(sent))
    for name, text, value in (
        ("cluster_stream_partitions_moved", "Partitions that went to another node.", moved),
        (
            "cluster_stream_holds_given_up",
            "Times that messages for a partition on its way to another node waited too long, and went on.",
            given_up,
        ),
    ):
        yield Family(name, "counter", text, (Sample((), value),))


def _samples(values: Mapping[str, int]) -> tuple[Sample, ...]:
    return tuple(Sample((("stream", name),), value) for name, value in values.items())
