"""Where reading starts and ends, asked of the broker."""

import logging
from typing import Final

from pyspark_vmq.client import Client
from pyspark_vmq.errors import DataLossError, OptionError, RecreatedError
from pyspark_vmq.offsets import EARLIEST, LATEST, Ids, Offsets, is_another
from pyspark_vmq.options import SourceOptions
from pyspark_vmq.planning import falling_back

log = logging.getLogger("pyspark_vmq")

#: Seconds that a partition which ends before a position has to come there: a copy may be behind the one asked before.
CATCH_UP: Final = 2.0


def streams_to_read(client: Client, options: SourceOptions) -> list[str]:
    """The streams of the options; with a topic alone, the one stream that keeps all of it.

    Raises:
        OptionError: no stream keeps the topic, or several do: their messages would come twice.
    """
    if options.streams:
        return list(options.streams)
    streams = client.streams()
    found = [
        name for name, filters in streams.items() if any(covers(f, options.topic) for f in filters)
    ]
    if not found:
        raise OptionError(
            "topic",
            f"no stream keeps all of {options.topic!r}; declare one in the broker's configuration "
            "([streams.NAME]) or with 'vmq stream create'",
        )
    if len(found) > 1:
        raise OptionError(
            "topic",
            f"several streams keep all of {options.topic!r}: {', '.join(found)}; "
            "name the one to read with option 'stream'",
        )
    return found


def covers(kept: str, asked: str) -> bool:
    """Whether a stream's filter keeps every message that another filter matches."""
    if kept[:1] in {"+", "#"} and asked[:1] == "$":
        return False  # [MQTT-4.7.2-1]
    have, want = kept.split("/"), asked.split("/")
    for index, level in enumerate(have):
        if level == "#":
            return True
        if index >= len(want) or want[index] == "#" or level not in {"+", want[index]}:
            return False
    return len(have) == len(want)


def at(client: Client, streams: list[str], end: int) -> Offsets:
    """The earliest or the latest offsets of all partitions."""
    look = client.earliest if end == EARLIEST else client.latest
    return {stream: look(stream) for stream in streams}


def start_of(client: Client, options: SourceOptions, streams: list[str], default: int) -> Offsets:
    """Where a new query starts.

    Raises:
        DataLossError: messages at offsets that the options name are gone, and `failOnDataLoss` is true.
    """
    if options.starting_timestamp is not None:
        return {stream: client.at_time(stream, options.starting_timestamp) for stream in streams}
    wanted = default if options.starting is None else options.starting
    if isinstance(wanted, int):
        return at(client, streams, wanted)
    given = resolved(client, "startingOffsets", wanted, streams, EARLIEST)
    return checked(client, options, given)


def end_of(client: Client, options: SourceOptions, streams: list[str]) -> Offsets:
    """Where a batch query ends."""
    if options.ending_timestamp is not None:
        return {stream: client.at_time(stream, options.ending_timestamp) for stream in streams}
    if options.ending is None or isinstance(options.ending, int):
        return at(client, streams, LATEST)
    wanted = resolved(client, "endingOffsets", options.ending, streams, LATEST)
    return bounded(client, options, wanted)


def bounded(client: Client, options: SourceOptions, end: Offsets) -> Offsets:
    """An end that is there; where a partition ends before, and the options allow it, its own.

    Raises:
        OptionError: a partition ends before, and `failOnDataLoss` is true.
    """
    latest = at(client, list(end), LATEST)
    kept: Offsets = {}
    for stream, partitions in end.items():
        kept[stream] = {}
        for number, place in partitions.items():
            last = latest[stream].get(number, 0)
            if place > last:
                problem = f"partition {number} of stream '{stream}' ends at {last}, before {place}"
                if options.fail_on_data_loss:
                    raise OptionError(
                        "endingOffsets",
                        f"{problem}; to read what is there set option 'failOnDataLoss' to false",
                    )
                log.warning("vmq: %s; reading what is there", problem)
            kept[stream][number] = min(place, last)
    return kept


def resolved(
    client: Client, option: str, wanted: Offsets, streams: list[str], default: int
) -> Offsets:
    """Offsets out of an option, with the ends looked up and missing partitions filled in."""
    strangers = [stream for stream in wanted if stream not in streams]
    if strangers:
        raise OptionError(
            option,
            f"stream '{strangers[0]}' is not read here; read are: {', '.join(streams)}",
        )
    ends = {end: at(client, streams, end) for end in (EARLIEST, LATEST)}
    found: Offsets = {}
    for stream in streams:
        known = ends[default][stream]
        given = wanted.get(stream, {})
        for number in given:
            if number not in known:
                raise OptionError(
                    option, f"stream '{stream}' has no partition {number}, only {len(known)}"
                )
        found[stream] = {
            number: ends[place][stream][number]
            if (place := given.get(number, default)) < 0
            else place
            for number in known
        }
    return found


def checked(client: Client, options: SourceOptions, start: Offsets) -> Offsets:
    """The start, if it is still there; else, where the options allow it, what is left.

    Raises:
        DataLossError: messages at the start are gone, and `failOnDataLoss` is true.
    """
    earliest = at(client, list(start), EARLIEST)
    latest = at(client, list(start), LATEST)
    kept: Offsets = {}
    for stream, partitions in start.items():
        kept[stream] = {}
        for number, place in partitions.items():
            first, last = earliest[stream].get(number, 0), latest[stream].get(number, 0)
            if first <= place <= last:
                kept[stream][number] = place
                continue
            lost = not_there(stream, number, place, f"it holds {first} to {last}")
            if options.fail_on_data_loss:
                raise DataLossError(lost + DataLossError.ADVICE)
            log.warning("%s; going on with what is there", lost)
            kept[stream][number] = min(max(place, first), last)
    return kept


def ids_at(client: Client, streams: list[str]) -> Ids:
    """The ids of some streams, as far as the broker gives them. To be asked before their offsets are.

    A stream that is made anew in between is noticed then: its offsets stand beside the id of the one before.
    """
    found = client.ids()
    return {stream: found[stream] for stream in streams if stream in found}


def followed(
    client: Client, options: SourceOptions, start: Offsets, known: Ids, now: Ids
) -> Offsets:
    """Positions of a checkpoint in the streams that are there now: where those begin that were made anew.

    Raises:
        RecreatedError: there is such a stream, and `failOnDataLoss` is true.
    """
    found = dict(start)
    for stream in start:
        if not is_another(known.get(stream), now.get(stream)):
            continue
        lost = (
            f"vmq: stream '{stream}' was deleted and made anew since the query has read it: "
            f"its id is {now[stream]}, in the checkpoint stands {known[stream] or 'none'}"
        )
        if options.fail_on_data_loss:
            raise RecreatedError(lost + DataLossError.ADVICE)
        log.warning("%s; going on where the new one begins", lost)
        found[stream] = client.earliest(stream)
    return found


def in_reach(
    client: Client, options: SourceOptions, start: Offsets, end: Offsets, same: set[str]
) -> Offsets:
    """Positions none of which is behind the end of its partition.

    Where one is, and the options allow it, the query goes on with what is there: at the end, of a stream that is
    known to be the same, which has been read as far as it goes; else with all of it, for it was made anew.

    Args:
        client: the broker.
        options: those of the query.
        start: the positions.
        end: where partitions end.
        same: the streams whose ids are those that they had.

    Raises:
        DataLossError: there is such a position, and `failOnDataLoss` is true.
    """
    kept = dict(start)
    for stream, partitions in falling_back(start, end).items():
        ends = dict(end[stream])
        for number, place in partitions.items():
            if number in ends:
                ends = client.wait(stream, {number: place - 1}, CATCH_UP)
        behind = {n: place for n, place in partitions.items() if ends.get(n, 0) < place}
        if not behind:
            continue
        number, place = min(behind.items())
        lost = not_there(stream, number, place, f"it ends at {ends.get(number, 0)}")
        if options.fail_on_data_loss:
            raise DataLossError(lost + DataLossError.ADVICE)
        log.warning("%s; going on with what is there", lost)
        if stream in same:
            kept[stream] = {**start[stream], **{n: ends.get(n, 0) for n in behind}}
        else:
            kept[stream] = client.earliest(stream)
    return kept


def replanned(
    client: Client, options: SourceOptions, start: Offsets, end: Offsets, same: set[str]
) -> Offsets:
    """Where a planned batch begins of which a partition ends before: of a stream that was made anew, where that does.

    Raises:
        DataLossError: there is such a partition, and `failOnDataLoss` is true.
    """
    kept = dict(start)
    for stream, partitions in falling_back(start, end).items():
        if stream in same:
            continue  # nothing of these partitions is in the batch: see `in_reach`
        number, place = min(partitions.items())
        lost = not_there(stream, number, place, f"it ended at {end[stream].get(number, 0)} since")
        if options.fail_on_data_loss:
            raise DataLossError(lost + DataLossError.ADVICE)
        kept[stream] = client.earliest(stream)
    return kept


def not_there(stream: str, number: int, place: int, what: str) -> str:
    """What is said of an offset that a partition has not."""
    return f"vmq: stream '{stream}', partition {number}: offset {place} is not there; {what}"
