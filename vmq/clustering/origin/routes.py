"""Which slots get a topic's messages: filter -> slots, as replicated. Whose subscription it is, only the slot knows."""

from vmq.mqtt.topics import matches, split_shared


class SlotRoutes:
    """The routes that a node knows."""

    def __init__(self) -> None:
        self._slots: dict[str, set[int]] = {}
        self._turn = 0

    def add(self, topic_filter: str, slot: int) -> None:
        self._slots.setdefault(topic_filter, set()).add(slot)

    def remove(self, topic_filter: str, slot: int) -> None:
        slots = self._slots.get(topic_filter)
        if slots is not None:
            slots.discard(slot)
            if not slots:
                del self._slots[topic_filter]

    def all(self) -> list[tuple[str, int]]:
        return [(each, slot) for each, slots in self._slots.items() for slot in sorted(slots)]

    def targets(self, topic: str) -> list[tuple[int, str]]:
        """Slot and share group ("": all subscribers there) for a message; of a group one slot, each in its turn."""
        plain: set[int] = set()
        found: list[tuple[int, str]] = []
        for each, slots in self._slots.items():
            group, topic_filter = split_shared(each)
            if not matches(topic_filter, topic):
                continue
            if group:
                self._turn += 1
                found.append((sorted(slots)[self._turn % len(slots)], each))
            else:
                plain |= slots
        return [*[(slot, "") for slot in sorted(plain)], *found]

    def slot_for(self, group: str, but: int) -> int:
        """Another slot with members of a group, always the same while routes are; -1: there is none."""
        return min((slot for slot in self._slots.get(group, ()) if slot != but), default=-1)
