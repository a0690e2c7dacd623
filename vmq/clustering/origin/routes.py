"""Which slots get a topic's messages: filter -> slots, as replicated. Whose subscription it is, only the slot knows."""

from collections.abc import Iterator

from vmq.clustering.slots.words import split_scope
from vmq.mqtt.topics import split_shared


class RouteLevel:
    """One level of the filters. Wildcards are words like others; only a search knows what they mean."""

    __slots__ = ("below", "filters")

    def __init__(self) -> None:
        self.below: dict[str, RouteLevel] = {}
        #: The whole filters that end here: one, and those of share groups.
        self.filters: dict[str, None] = {}


class SlotRoutes:
    """The routes that a node knows: filters and share groups behind the scopes of their mountpoints."""

    def __init__(self) -> None:
        self._slots: dict[str, set[int]] = {}
        #: By scope.
        self._roots: dict[str, RouteLevel] = {}
        self._turn = 0
        #: Slots in which no member of a share group is connected.
        self._away: dict[str, set[int]] = {}

    def add(self, topic_filter: str, slot: int) -> None:
        slots = self._slots.get(topic_filter)
        if slots is None:
            slots = self._slots[topic_filter] = set()
            scope, plain = split_scope(topic_filter)
            level = self._roots.setdefault(scope, RouteLevel())
            for word in split_shared(plain)[1].split("/"):
                level = level.below.setdefault(word, RouteLevel())
            level.filters[topic_filter] = None
        slots.add(slot)

    def remove(self, topic_filter: str, slot: int) -> None:
        slots = self._slots.get(topic_filter)
        if slots is None:
            return
        slots.discard(slot)
        self.set_presence(topic_filter, slot, True)
        if slots:
            return
        del self._slots[topic_filter]
        scope, plain = split_scope(topic_filter)
        path = [self._roots[scope]]
        words = split_shared(plain)[1].split("/")
        for word in words:
            path.append(path[-1].below[word])
        del path[-1].filters[topic_filter]
        for index in range(len(words) - 1, -1, -1):
            if path[index + 1].filters or path[index + 1].below:
                break
            del path[index].below[words[index]]

    def has(self, topic_filter: str, slot: int) -> bool:
        return slot in self._slots.get(topic_filter, ())

    def set_presence(self, group: str, slot: int, is_there: bool) -> None:
        """Whether some members of a share group in a slot are connected."""
        away = self._away.setdefault(group, set())
        if is_there:
            away.discard(slot)
        else:
            away.add(slot)
        if not away:
            del self._away[group]

    def mountpoints(self) -> list[str]:
        """Those in which anything is subscribed to."""
        return [scope[1:-1] for scope, root in self._roots.items() if root.below]

    def all(self) -> list[tuple[str, int]]:
        return [(each, slot) for each, slots in self._slots.items() for slot in sorted(slots)]

    def targets(self, topic: str, scope: str = "") -> list[tuple[int, str]]:
        """Slot and whom there for a message: a share group, or the scope alone for all other subscribers.

        Of a group it is one slot, each in its turn.
        """
        plain, groups = self.find(topic, scope)
        shared = [(self.slot_for(group, -1, True), group) for group in groups]
        return [*[(slot, scope) for slot in plain], *shared]

    def find(self, topic: str, scope: str = "") -> tuple[list[int], list[str]]:
        """The slots whose subscribers are to get a topic's messages, and the share groups with members in slots."""
        plain: set[int] = set()
        groups: list[str] = []
        for level in self._matching(topic, scope):
            for each in level.filters:
                if split_shared(each[len(scope) :])[0]:
                    groups.append(each)
                else:
                    plain |= self._slots[each]
        return sorted(plain), groups

    def _matching(self, topic: str, scope: str) -> Iterator[RouteLevel]:
        """The levels at which matching filters end: without recursion, for a topic may have 32,768 levels."""
        root = self._roots.get(scope)
        current = [] if root is None else [root]
        is_system = topic.startswith("$")  # hidden from leading wildcards [MQTT-4.7.2-1]
        for index, word in enumerate(topic.split("/")):
            following: list[RouteLevel] = []
            for level in current:
                if not (is_system and index == 0):
                    if (rest := level.below.get("#")) is not None:
                        yield rest
                    if (any_word := level.below.get("+")) is not None:
                        following.append(any_word)
                if (exact := level.below.get(word)) is not None:
                    following.append(exact)
            current = following
        for level in current:
            yield level
            if (rest := level.below.get("#")) is not None:  # a/# matches a as well
                yield rest

    def slots_of(self, group: str) -> tuple[list[int], list[int]]:
        """The slots in which some members of a share group are connected, and those in which none is."""
        slots, away = self._slots.get(group, set()), self._away.get(group, set())
        return sorted(slots - away), sorted(slots & away)

    def slot_for(self, group: str, but: int, is_any: bool) -> int:
        """A slot with members of a group besides one, each in its turn: with connected ones, if there is any.

        -1: there is none; `is_any`: else one whose members are all away.
        """
        there, away = [[each for each in slots if each != but] for slots in self.slots_of(group)]
        found = there or (away if is_any else [])
        self._turn += 1
        return found[self._turn % len(found)] if found else -1
