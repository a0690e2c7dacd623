"""Which streams there are: one node makes, changes or deletes a stream, and all others follow."""

import asyncio
import logging
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vmq.clustering.streams.metadata import Definition, PlaceError, decode_definition
from vmq.clustering.streams.records import StreamRecords
from vmq_cluster.keyed_records import decode

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")

#: Copies that a stream has at most if nobody says how many.
COPIES: Final = 3
#: Seconds until a stream is opened again that could not be.
_AGAIN: Final = 5.0


class _Copies(msgspec.Struct):
    """What of a configured stream says how many copies it has."""

    replicas: int = 0


class Definitions:
    """The definitions of a cluster in the catalog of one node.

    Args:
        name: this node's.
        records: the cluster's.
        catalog: this node's.
        members: the nodes that belong to the cluster.
        on_adopted: called when a stream is as the cluster defines it, which may be another one than before.
        on_followed: called when one has been followed late, since one of its name was not gone yet.
    """

    def __init__(
        self,
        name: str,
        records: StreamRecords,
        catalog: "Catalog",
        members: Callable[[], Container[str]],
        on_adopted: Callable[[], None],
        on_followed: Callable[[], None],
    ) -> None:
        self._name = name
        self._records = records
        self._catalog = catalog
        self._members = members
        self._on_adopted = on_adopted
        self._on_followed = on_followed
        #: Streams that this node cannot keep, why, and what tries it again where the disk was it.
        self._failed: dict[str, tuple[str, asyncio.TimerHandle | None]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Follows no more."""
        self._is_closed = True
        for _, again in self._failed.values():
            if again is not None:
                again.cancel()

    def reconcile(self, stream: "Stream", *, is_new: bool = False) -> None:
        """Makes what this node wants of a stream, and what the cluster knows of it, the same.

        One that is made now (`is_new`) is wanted, though there was one of its name that was deleted.

        What a configuration says counts when it is new, that is, when it is not what it said at this node's last start.
        """
        records, name = self._records, stream.name
        known = records.get("stream", name)
        is_wanted = stream.fed and stream.origin != "command"
        declared = stream.declared
        said = msgspec.json.encode(declared) if is_wanted else None
        if said == records.get("config", name, self._name) and (
            known or (known is not None and not is_wanted and not is_new)
        ):
            return  # the cluster's counts
        if said is not None:
            records.put(said, "config", name, self._name)
        else:
            records.delete("config", name, self._name)
            if known is not None and not is_new:
                return
        most, copies = len(stream.partitions), stream.options.replicas
        stream_id, is_anew = stream.stream_id, known == b""
        if known:
            try:
                found = decode_definition(name, known)
                before, stream_id, is_anew = found.options, found.stream_id, found.is_anew
                most, copies = max(most, before.partitions), max(copies, before.replicas)
            except PlaceError as error:
                log.warning("%s", error)
        copies = declared.replicas if declared.replicas > 1 else copies
        options = msgspec.structs.replace(declared, partitions=most, replicas=copies)
        made = options, stream.origin, records.now(), stream_id, is_anew
        records.define(name, Definition(*made))
        if stream_id != stream.stream_id:
            self._catalog.adopt(name, stream.options, stream.origin, stream_id)

    def spread(self, hosts: int) -> None:
        """Streams whose number of copies is left open get one on each host, three at most; never fewer than before."""
        wanted = min(COPIES, hosts)
        for name, stream in list(self._catalog.streams.items()):
            raw = self._records.get("stream", name)
            if wanted > max(1, stream.options.replicas) and raw and self._is_open(name):
                if wrong := self.change(name, {"replicas": wanted}):
                    log.warning("%s", wrong)

    def _is_open(self, name: str) -> bool:
        """Whether those that name a stream leave its number of copies open."""
        members = self._members()
        said = [
            decode(raw, _Copies)
            for node, raw in self._records.configured(name).items()
            if node in members
        ]
        return bool(said) and all(each is not None and not each.replicas for each in said)

    def alter(self, name: str, copies: int, hosts: int) -> str:
        """Has a stream get another number of copies; returns what is wrong with that, "" if nothing is."""
        if not 2 <= copies <= hosts:
            there = f"2 to {hosts}" if hosts > 1 else "none: copies take two"
            return f"{copies} copies take as many hosts that keep streams; accepted: {there}"
        return self.change(name, {"replicas": copies})

    def change(self, name: str, changes: Mapping[str, Any]) -> str:
        """Has a stream get other options; returns what is wrong with that, "" if nothing is."""
        raw = self._records.get("stream", name)
        if not raw:
            return f"the cluster does not know the stream {name!r} yet"
        try:
            found = decode_definition(name, raw)
        except PlaceError as error:
            return str(error)
        options = msgspec.structs.replace(found.options, **changes)
        since = max(self._records.now(), found.since + 1)
        self._records.define(name, msgspec.structs.replace(found, options=options, since=since))
        self.follow(name)
        return ""

    def deleted(self, name: str, partitions: int) -> None:
        """This node has deleted a stream."""
        self._records.put(b"", "stream", name)
        for number in range(max(partitions, self._records.owned(name))):
            self._records.delete("owner", name, str(number))

    def follow(self, name: str) -> None:
        """Has a stream as the metadata define it."""
        if self._catalog.leaving.then(name, lambda: self._follow_late(name)):
            return
        raw = self._records.get("stream", name)
        if raw and not self._is_of_before(name, raw):
            self.adopt(name, raw)
        elif raw is not None and name in self._catalog.streams:
            log.info("stream %s was deleted on another node", name)
            self._catalog.drop(name)
            self.follow(name)

    def _is_of_before(self, name: str, raw: bytes) -> bool:
        """Whether that of this node was deleted while it was away, and another one of the name made, which is younger.

        Of one stream that several nodes have made all take the older id.
        """
        had = self._catalog.streams.get(name)
        if had is None or not had.stream_id:
            return False
        try:
            return decode_definition(name, raw).stream_id > had.stream_id
        except PlaceError:
            return False

    def _follow_late(self, name: str) -> None:
        self.follow(name)
        self._on_followed()

    def adopt(self, name: str, raw: bytes) -> None:
        """Has a stream of this definition: soon, if a thread has to open partitions first."""
        from vmq.streams.growing import open_more
        from vmq.streams.log.errors import StreamError

        catalog, records = self._catalog, self._records
        try:
            found = decode_definition(name, raw)
            options = found.options
            had = catalog.streams.get(name)
            if had is not None and len(had.partitions) > options.partitions:
                options = msgspec.structs.replace(options, partitions=len(had.partitions))
                since = max(records.now(), found.since + 1)
                records.define(name, msgspec.structs.replace(found, options=options, since=since))
            if had is None:
                new = name, options, found.origin, found.stream_id
                self._follow_after(name, catalog.open_new(*new))
                return
            if len(had.partitions) < options.partitions:
                self._follow_after(name, open_more(catalog.leaving, had, options.partitions))
                return
            stream = catalog.adopt(name, options, found.origin, found.stream_id)
        except (PlaceError, StreamError, OSError) as error:
            self._cannot_keep(name, error)
            return
        stream.fed = found.origin == "command" or self._is_configured(name)
        self._failed.pop(name, None)
        catalog.on_change()
        self._on_adopted()

    def _follow_after(self, name: str, opening: "asyncio.Future[Any]") -> None:
        """Has a stream be as it is defined then, once a thread has opened its partitions."""

        def opened(opening: "asyncio.Future[Any]") -> None:
            if opening.cancelled():
                return
            if (error := opening.exception()) is None:
                self._follow_late(name)
            else:
                self._cannot_keep(name, error)

        opening.add_done_callback(opened)

    def _cannot_keep(self, name: str, error: BaseException) -> None:
        reason, (before, again) = str(error), self._failed.get(name, ("", None))
        if reason != before:
            log.error("this node cannot keep the stream %r of the cluster: %s", name, reason)
        if again is not None:
            again.cancel()
        if isinstance(error, OSError) and not self._is_closed:
            again = asyncio.get_running_loop().call_later(_AGAIN, self._follow_late, name)
        self._failed[name] = reason, again

    def _is_configured(self, name: str) -> bool:
        members = self._members()
        return any(each in members for each in self._records.configured(name))
