"""A slot's state on a node that does not own it: records on its disk, as they came from an owner. In memory is none.

A copy is whole, or it is being built: parts of a state, and over them the changes that came meanwhile. What is being
built replaces nothing until it is whole; until then it counts only for the messages in it. A copy that stays unfinished
is merged into what there was before (`settle`), under a lineage of this incarnation's own, epoch 0.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from vmq.clustering.messages.slots import SlotView
from vmq.clustering.slots.cold import RunReader
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.merge import merge
from vmq.clustering.slots.records import (
    HEAD_KEY,
    all_records,
    head_of,
    lacks_of,
    load_state,
    mixed_of,
    run_key,
    salvage,
)
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import NO_LINEAGE, Incarnation, Lineage, includes, store_of
from vmq_cluster.errors import StorageError
from vmq_cluster.storage import Readable, after_prefix

RECORD: Final = b"S"
VIEW: Final = b"V"
#: Bytes of a key that say which set of records it is of.
_PREFIX: Final = 7
_ENCODER: Final = msgspec.msgpack.Encoder()
_VIEWS: Final = msgspec.msgpack.Decoder(tuple[SlotView, int])


class RecentKeys:
    """Which records of a copy may not be safe yet: what an owner changed behind the version that it calls safe."""

    def __init__(self) -> None:
        self._keys: deque[tuple[int, list[bytes]]] = deque()
        #: The first version of which they are here, and whether all before it is safe: else any record may not be.
        self._first = 0
        self._is_all = False

    def begin(self, version: int, keys: list[bytes]) -> None:
        """A transfer of a whole state begins with what is not safe of it."""
        self._keys = deque([(version, keys)])
        self._first, self._is_all = version, True

    def add(self, version: int, keys: list[bytes], safe: int) -> None:
        self._first = self._first or version
        self._is_all = self._is_all or safe >= self._first
        self._keys.append((version, keys))
        while self._keys and self._keys[0][0] <= safe:
            self._keys.popleft()

    def adopt(self) -> None:
        """A new lineage goes on from here: its first version has all of them."""
        self._keys = deque([(1, keys) for _, keys in self._keys])
        self._first = 1

    def keys(self) -> set[bytes] | None:
        """Those that may not be safe; None: it may be any."""
        return {key for _, keys in self._keys for key in keys} if self._is_all else None


class RecordSet:
    """Some records of a slot on disk, under a number of their own."""

    def __init__(self, slot: int, number: int, lineage: Lineage, version: int) -> None:
        self.slot = slot
        self.number = number
        #: Of its keys on disk.
        self.prefix = RECORD + slot.to_bytes(2, "big") + number.to_bytes(4, "big")
        self.lineage = lineage
        #: Every change up to it is in here.
        self.version = version
        #: The head's record; b"": there is none yet.
        self.head = b""
        #: Keys that changes have set while parts come: of these a part is older.
        self.fresh: set[bytes] = set()
        self.next_part = 0
        self.recent = RecentKeys()

    def put(self, effects: Effects, key: bytes, value: bytes | None) -> None:
        if key == HEAD_KEY:
            self.head = value or b""
        effects.put(self.prefix + key, value)

    def read(self, effects: Effects) -> dict[bytes, bytes]:
        """All of it."""
        return effects.read(self.prefix)

    def read_cold(self, effects: Effects) -> dict[bytes, bytes]:
        """All of it but the messages that an owner needs not have in memory."""
        found: dict[bytes, bytes] = {}
        for first, end in ((b"", run_key(mixed_of(self.head) + 1)), (b"n", b"\xff")):
            for key, value in effects.scan(self.prefix + first, self.prefix + end):
                found[key[_PREFIX:]] = value
        return found

    def delete(self, effects: Effects) -> None:
        for key in self.read(effects):
            effects.put(self.prefix + key, None)


class StoredRuns(RunReader):
    """The messages of a set of records."""

    def __init__(self, effects: Effects, records: RecordSet) -> None:
        self._effects = effects
        self._prefix = records.prefix

    def runs(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        at = self._prefix + run_key(first)
        for key, value in self._effects.scan(at, self._prefix + run_key(last + 1)):
            yield int.from_bytes(key[_PREFIX + 1 :], "big"), value


class SlotCopy:
    """What a node has of a slot that it does not own."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.whole: RecordSet | None = None
        self.building: RecordSet | None = None
        #: Built in part, and given up; they go when another is whole.
        self.remains: list[RecordSet] = []
        #: What is needed no more, and the disk did not list to be deleted.
        self._undeleted: list[RecordSet] = []
        self.last_number = 0
        #: It followed an owner in this life of the broker. What was found on disk at the start may have lost its end.
        self.has_followed = False
        #: The last lineage of which it has all that was safe.
        self.current: Lineage = NO_LINEAGE
        #: What came last that follows nothing here: lineage and version. The owner was told.
        self.stray: tuple[Lineage, int] = (NO_LINEAGE, 0)

    def base(self) -> tuple[Lineage, int]:
        """The state that it is exactly; version 0: nothing is whole."""
        return (NO_LINEAGE, 0) if self.whole is None else (self.whole.lineage, self.whole.version)

    def lacks(self) -> bool:
        """Whether its owner had begun without a current copy."""
        return self.whole is not None and lacks_of(self.whole.head) != NO_LINEAGE

    def is_included(self, included: dict[Lineage, int]) -> bool:
        """Whether a state with this has everything that is in here."""
        sets = [self.whole, self.building, *self.remains]
        return all(each is None or includes(included, each.lineage, each.version) for each in sets)

    def new_set(self, lineage: Lineage, version: int) -> RecordSet:
        self.last_number += 1
        return RecordSet(self.slot, self.last_number, lineage, version)

    # A follower

    def begin(self, lineage: Lineage, version: int) -> RecordSet:
        """A new copy begins, of the state at a version."""
        if self.building is not None:
            self.remains.append(self.building)
        self.building = built = self.new_set(lineage, version)
        return built

    def add_part(self, effects: Effects, records: list[tuple[bytes, bytes | None]]) -> None:
        built = self.building
        assert built is not None
        if not built.next_part:  # what is not safe yet
            built.recent.begin(built.version, [key for key, _ in records])
        built.next_part += 1
        for key, value in records:
            if key not in built.fresh:
                built.put(effects, key, value)

    def change(
        self,
        effects: Effects,
        lineage: Lineage,
        after: int,
        version: int,
        records: list[tuple[bytes, bytes | None]],
        safe: int,
    ) -> bool:
        """What the owner changed next, and what is safe; False: it follows nothing that is here.

        It may follow both, if the owner has asked again while parts came: one of the two it does not know of.
        """
        whole, built = self.whole, self.building
        if whole is not None and (whole.lineage, whole.version) != (lineage, after):
            whole = None
        if built is not None and (built.lineage, built.version) != (lineage, after):
            if whole is not None and built.lineage == lineage and built.version <= version:
                self._delete(effects, [built])  # the owner has found out that no transfer is needed
                self.building = None
            built = None
        keys = [key for key, _ in records]
        if built is not None:
            built.fresh.update(keys)
        for each in (whole, built):
            if each is not None:
                for key, value in records:
                    each.put(effects, key, value)
                each.version = version
                each.recent.add(version, keys, safe)
        return whole is not None or built is not None

    def is_exact(self) -> bool:
        """Whether what is whole is as new as what is being built, if anything is."""
        built = self.building
        return built is None or self.base() == (built.lineage, built.version)

    def adopt(self, lineage: Lineage) -> None:
        """A new owner goes on from exactly this state: its first version is the next here.

        On disk the head stays as it is until that comes.
        """
        assert self.whole is not None
        self.whole.lineage, self.whole.version = lineage, 0
        self.whole.recent.adopt()

    def finish(self, effects: Effects, view: SlotView) -> None:
        """The copy that was being built is whole; everything else goes."""
        assert self.building is not None
        old = [self.whole, *self.remains]
        self.whole, self.building, self.remains = self.building, None, []
        self.whole.fresh = set()
        self._delete(effects, old)
        self.note(effects, view)

    def _delete(self, effects: Effects, sets: list[RecordSet | None]) -> None:
        """Has records go that are needed no more; if the disk does not list them, another time."""
        left, self._undeleted = [*self._undeleted, *sets], []
        for each in left:
            if each is not None:
                try:
                    each.delete(effects)
                except StorageError:
                    self._undeleted.append(each)

    def note(self, effects: Effects, view: SlotView) -> None:
        """Writes who has the slot, and which records are whole: a promise."""
        number = 0 if self.whole is None else self.whole.number
        effects.put(VIEW + self.slot.to_bytes(2, "big"), _ENCODER.encode((view, number)))
        effects.must_sync = True

    # What it is worth

    def is_current(self, view: SlotView, me: int) -> bool:
        """Whether it has all that was safe: the owner's own, or that of one of its first followers, or a whole one.

        One that was only found on disk may have lost its end. Of what an owner does, nothing is safe before its first
        followers have it: until then what was safe in the lineage before is all.
        """
        if self.whole is None or not self.has_followed:
            return False
        if me != store_of(view.owner) and me not in view.followers:
            return False
        is_before = view.number <= 2 and self.current[0] + 1 == view.epoch
        return self.whole.lineage == view.lineage or is_before

    def settle(self, effects: Effects, me: Incarnation, view: SlotView) -> None:
        """What was not finished joins what is whole."""
        remains = self.remains if self.building is None else [*self.remains, self.building]
        if not remains:
            return
        state = self.state(effects)
        for each in remains:
            merge(state, salvage(each.read(effects)))
        self.remains = remains
        self._become(effects, me, view, state)

    def join(self, effects: Effects, me: Incarnation, view: SlotView, other: SlotState) -> None:
        """What this store has otherwise of the slot's clients joins what is whole."""
        self.settle(effects, me, view)
        state = other
        if self.whole is not None:
            state = self.state(effects)
            merge(state, other)
        self._become(effects, me, view, state)

    def _become(self, effects: Effects, me: Incarnation, view: SlotView, state: SlotState) -> None:
        """A state of this node's own is what is whole."""
        private = (0, me)
        state.lineage = private
        state.version = state.included.get(private, 0)
        state.close()
        self.building = self.new_set(private, state.version)
        for key, value in all_records(state).items():
            self.building.put(effects, key, value)
        self.finish(effects, view)

    def state(self, effects: Effects, is_cold: bool = False) -> SlotState:
        """The state, without what is unfinished; `is_cold`: for an owner who reads messages when their clients come."""
        if self.whole is None:
            return SlotState()
        records = self.whole.read_cold(effects) if is_cold else self.whole.read(effects)
        return load_state(records, is_cold)

    def delete(self, effects: Effects, view: SlotView) -> None:
        self._delete(effects, [self.whole, self.building, *self.remains])
        self.whole = self.building = None
        self.remains = []
        self.current = NO_LINEAGE
        self.note(effects, view)


def load_copies(disk: Readable) -> tuple[dict[int, SlotView], dict[int, SlotCopy]]:
    """What a store has of slots at the start of the broker. Of records only the heads are read."""
    views: dict[int, SlotView] = {}
    copies: dict[int, SlotCopy] = {}
    numbers: dict[int, int] = {}
    for key, value in disk.scan(VIEW, after_prefix(VIEW)):
        slot = int.from_bytes(key[1:3], "big")
        view, numbers[slot] = _VIEWS.decode(value)
        if view.epoch:
            views[slot] = view
    for slot, number in _numbers(disk):
        each = RecordSet(slot, number, NO_LINEAGE, 0)
        copy = copies.setdefault(slot, SlotCopy(slot))
        copy.last_number = max(copy.last_number, number)
        each.head = disk.get(each.prefix + HEAD_KEY) or b""
        if each.head:
            each.lineage, each.version, _ = head_of(each.head)
        if number == numbers.get(slot):
            copy.whole = each
        else:
            copy.remains.append(each)
    return views, copies


def _numbers(disk: Readable) -> Iterator[tuple[int, int]]:
    """The sets of records that there are: slots and numbers, by their first keys."""
    end, first = after_prefix(RECORD), RECORD
    while first < end:
        found = next(iter(disk.scan(first, end)), None)
        if found is None:
            return
        prefix = found[0][:_PREFIX]
        yield int.from_bytes(prefix[1:3], "big"), int.from_bytes(prefix[3:], "big")
        first = (int.from_bytes(prefix, "big") + 1).to_bytes(_PREFIX, "big")
