"""Positions in streams: which message of each partition is the next one to read.

In a checkpoint they stand as `{"v": 1, "s": {stream: {partition: next}}, "ids": {stream: id}}`. A partition that is
not named has not been read at all. By its id a stream is told from one of the same name that was made anew; checkpoints
of earlier versions, and of brokers that give none, have no ids.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark_vmq.errors import OptionError, VmqError

VERSION: Final = 1

#: The numbers that stand for the ends of a partition in `startingOffsets`, as in Spark's Kafka source.
LATEST: Final = -1
EARLIEST: Final = -2

#: stream -> partition -> the next offset.
Offsets = dict[str, dict[int, int]]

#: stream -> its id; without those whose ids nobody knows. "" is the id of those that were made before there were ids.
Ids = Mapping[str, str]


def to_checkpoint(offsets: Offsets, ids: Ids | None = None) -> dict[str, Any]:
    """What Spark writes into the checkpoint."""
    known = {stream: ids[stream] for stream in sorted(offsets) if stream in ids} if ids else {}
    return {
        "v": VERSION,
        "s": {
            stream: {str(number): offsets[stream][number] for number in sorted(offsets[stream])}
            for stream in sorted(offsets)
        },
        **({"ids": known} if known else {}),
    }


def from_checkpoint(stored: Mapping[str, Any]) -> Offsets:
    """The positions that a checkpoint holds.

    Raises:
        VmqError: the checkpoint was written by a later version, or by another source.
    """
    if stored.get("v") != VERSION:
        raise VmqError(
            f"vmq: the checkpoint holds offsets of version {stored.get('v')!r}; "
            f"this version of pyspark_vmq reads version {VERSION}"
        )
    return {
        stream: {int(number): int(following) for number, following in partitions.items()}
        for stream, partitions in stored["s"].items()
    }


def ids_of(stored: Mapping[str, Any]) -> Ids:
    """The ids of the streams that the positions of a checkpoint are of, as far as it says."""
    return {str(stream): str(each) for stream, each in stored.get("ids", {}).items()}


def is_another(known: str | None, now: str | None) -> bool:
    """Whether a stream is another one than the one of its name that had this id."""
    return known is not None and bool(now) and known != now


def from_option(option: str, text: str, *, ends: tuple[int, ...]) -> Offsets:
    """The offsets that a user wrote as JSON: `{"stream": {"0": 23, "1": -2}}`.

    Args:
        option: the option's name, for errors.
        text: its value.
        ends: which of EARLIEST and LATEST have a meaning here.

    Raises:
        OptionError: no such JSON, a negative offset without meaning.
    """
    wanted = 'JSON like {"stream": {"0": 23, "1": ' + str(ends[0]) + "}}"
    try:
        given = json.loads(text)
        offsets = {
            str(stream): {_whole(number): _offset(place) for number, place in partitions.items()}
            for stream, partitions in given.items()
        }
    except (ValueError, AttributeError, TypeError):
        raise OptionError(option, f"{text!r} is not accepted; expected {wanted}") from None
    for stream, partitions in offsets.items():
        for number, place in partitions.items():
            if number < 0 or (place < 0 and place not in ends):
                raise OptionError(
                    option,
                    f"partition {number} of stream '{stream}' has offset {place}; accepted are "
                    f"numbers from 0, and {' and '.join(map(str, ends))}",
                )
    return offsets


def _whole(text: str) -> int:
    """The number of a partition, which JSON has as text."""
    if not text.removeprefix("-").isdecimal():
        raise ValueError(text)
    return int(text)


def _offset(place: Any) -> int:
    """An offset, which is a whole number in JSON: neither true nor 1.0 are."""
    if type(place) is not int:
        raise TypeError(place)
    return place
