"""Definitions and owners in the metadata."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.streams.support import options
from vmq.clustering.streams.metadata import (
    Definition,
    Ownership,
    PlaceError,
    chosen,
    decode_definition,
    merge,
)
from vmq_cluster.keyed_records import encode

NODES = st.sets(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8)


@given(NODES, st.text("xyz", min_size=1), st.integers(0, 50))
def test_a_node_that_comes_takes_from_others_only_what_it_gets(
    nodes: set[str], stream: str, partition: int
) -> None:
    before = chosen(stream, partition, nodes)
    assert before == chosen(stream, partition, sorted(nodes, reverse=True))
    assert chosen(stream, partition, {*nodes, "new"}) in {before, "new"}


def test_partitions_spread() -> None:
    counts = [0, 0, 0]
    for partition in range(300):
        counts["abc".index(chosen("s", partition, "abc"))] += 1
    assert min(counts) > 60


def test_of_owners_the_earlier_stays_of_definitions_the_later() -> None:
    one, two = encode(Ownership("a", 5)), encode(Ownership("b", 7))
    assert merge(one, two) == merge(two, one) == one
    first = encode(Definition(options(filters=["a"]), "config", 5))
    second = encode(Definition(options(filters=["b"]), "config", 7))
    assert merge(first, second) == merge(second, first) == second
    assert merge(first, b"") == merge(b"", first) == first


def test_of_ids_the_older_stays() -> None:
    """A node that joins defines a stream of its configuration, and knows of none that is there."""
    ours, theirs = options(filters=["a"]), options(filters=["b"])
    there = encode(Definition(ours, "config", 5, "0001-x"))
    joined = encode(Definition(theirs, "config", 7, "0002-y"))
    early = encode(Definition(ours, "config", 4, ""))
    merged = encode(Definition(theirs, "config", 7, "0001-x"))
    assert merge(there, joined) == merge(joined, there) == merged
    assert merge(merged, joined) == merge(merged, there) == merge(merged, b"") == merged
    assert decode_definition("s", merge(merge(joined, early), there)).stream_id == ""
    assert merge(merge(joined, early), there) == merge(joined, merge(early, there))


def test_of_partitions_and_copies_the_most_stay() -> None:
    """A node that joins with a later definition leaves a stream with copies its one log."""
    before = options(filters=["a"], partitions=2, replicas=3)
    there = encode(Definition(before, "config", 5, "0001"))
    joined = encode(Definition(options(filters=["b"], partitions=4), "config", 7, "0000"))
    merged = options(filters=["b"], partitions=4, replicas=3)
    for each in merge(there, joined), merge(joined, there):
        assert decode_definition("s", each) == Definition(merged, "config", 7, "0000")


def test_what_is_no_definition_is_refused() -> None:
    good = Definition(options(filters=["a/#"]), "command", 1)
    assert decode_definition("s", encode(good)) == good
    for raw in (b"", b"{}", b"\xff", encode(Definition(options(filters=["a/#/b"]), "command", 1))):
        with pytest.raises(PlaceError, match="no definition"):
            decode_definition("s", raw)
