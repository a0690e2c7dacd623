"""Where partitions are and who leads them, out of the metadata, kept as these change.

There may be tens of thousands of both: whoever looks is told what is new, and nobody reads all of them again.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vmq.clustering.raft.places import Key
from vmq.clustering.raft.records import GroupRecords, Lead, ReplicaPlace, node_of
from vmq_cluster.effects import Changed
from vmq_cluster.keyed_records import decode, parts_of

log = logging.getLogger("vmq.cluster")


class PictureNews(NamedTuple):
    """What has changed since somebody looked last."""

    #: Partitions that have another place, or none any more, or whose group has another leader or other voters.
    keys: set[Key]
    #: Groups of which another leader is known.
    led: set[str]
    #: The same partitions have other places, or groups other voters than they were to have.
    is_moved: bool
    #: Something else has changed.
    has_more: bool


class GroupPicture:
    """Kept in the event loop.

    Args:
        records: what stands in the metadata.
    """

    def __init__(self, records: GroupRecords) -> None:
        self._records = records
        self.places: dict[Key, ReplicaPlace] = {}
        self.leads: dict[str, Lead] = {}
        self._keys: dict[str, Key] = {}
        #: The groups whose voters are not yet those that are to be.
        self.moving: set[str] = set()
        self._is_read = False
        self._news = PictureNews(set(), set(), False, False)

    def on_changes(self, changes: Iterable[Changed]) -> bool:
        """The metadata have changed; returns whether in anything but leaders."""
        if not self._is_read:
            return True  # `news` reads it
        places: dict[Key, ReplicaPlace | None] = {}
        is_more = False
        for change in changes:
            parts = parts_of(change.key)
            if parts[:1] == ["lead"] and len(parts) == 2:
                self._on_lead(parts[1], decode(change.value, Lead))
            elif parts[:1] == ["place"] and (key := _key(parts[1:])) is not None:
                places[key] = decode(change.value, ReplicaPlace)
            else:
                is_more = True
        if places:
            self._on_places(places)
        self._news = self._news._replace(has_more=self._news.has_more or is_more)
        return is_more or bool(places)

    def _on_lead(self, group: str, lead: Lead | None) -> None:
        before = self.leads.get(group)
        if lead is None:
            self.leads.pop(group, None)
            self._look_whether_it_moves(group)
            return
        self.leads[group] = lead
        self._look_whether_it_moves(group)
        self._news.led.add(group)
        key = self._keys.get(group)
        if key is None:
            return  # it is looked at with its place
        place = self.places[key]
        known = {place.voters, place.first} if before is None else {before.voters}
        if known != {lead.voters}:
            self._news.keys.add(key)
            self._news = self._news._replace(is_moved=True)

    def _on_places(self, changed: dict[Key, ReplicaPlace | None]) -> None:
        for key, place in changed.items():
            before = self.places.pop(key, None)
            if before is not None and self._keys.get(before.group) == key:
                del self._keys[before.group]
                self.moving.discard(before.group)
            if place is not None:
                self.places[key] = place
                self._keys[place.group] = key
                self._look_whether_it_moves(place.group)
        self._news.keys.update(changed)
        self._news = self._news._replace(is_moved=True)

    def _look_whether_it_moves(self, group: str) -> None:
        coming, going = self.change_of(self._keys.get(group))
        if coming or going:
            self.moving.add(group)
        else:
            self.moving.discard(group)

    def change_of(self, key: Key | None) -> tuple[list[str], list[str]]:
        """The nodes that are to have a partition and do not vote yet, and those that do and are to go."""
        place = None if key is None else self.places.get(key)
        if place is None:
            return [], []
        lead = self.leads.get(place.group)
        voters = place.first if lead is None else lead.voters
        coming = [node_of(each) for each in place.voters if each not in voters]
        return coming, [node_of(each) for each in voters if each not in place.voters]

    def news(self) -> PictureNews:
        """What has changed since this was asked last; everything, the first time."""
        if not self._is_read and self._records.node.is_running:
            self._is_read = True
            for parts, place in self._records.records("place", ReplicaPlace):
                if (key := _key(parts)) is not None:
                    self.places[key] = place
            self._keys = {place.group: key for key, place in self.places.items()}
            self.leads = {parts[0]: lead for parts, lead in self._records.records("lead", Lead)}
            for group in self._keys:
                self._look_whether_it_moves(group)
            self._news = PictureNews(set(self.places), set(self.leads), True, True)
        news, self._news = self._news, PictureNews(set(), set(), False, False)
        return news

    def led_among(self, news: PictureNews) -> list[tuple[str, Lead]]:
        """The leaders of the groups of which there is news."""
        groups = {self.places[key].group for key in news.keys if key in self.places} | news.led
        return [(group, self.leads[group]) for group in groups if group in self.leads]

    def tell(self, news: Mapping[str, Lead]) -> None:
        """This node leads these groups: the metadata are to say so."""
        for group, lead in news.items():
            before = self.leads.get(group)
            if before != lead:
                self._records.write_lead(group, lead)
            if (
                before is not None
                and set(before.voters) != set(lead.voters)
                and group in self._keys
            ):
                nodes = ",".join(sorted(map(node_of, lead.voters)))
                log.info("stream=%s partition=%d has copies on=%s", *self._keys[group], nodes)


def _key(parts: list[str]) -> Key | None:
    return (parts[0], int(parts[1])) if len(parts) == 2 and parts[1].isdecimal() else None
