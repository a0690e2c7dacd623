"""What a broker tells of a store that is damaged, and whom it refuses for it."""

import logging
from collections.abc import Iterator, Mapping, Sequence

from vmq.core.registry import Registry
from vmq.core.states import FAILED
from vmq.core.subscriber import Subscriber
from vmq.store.damage import ADVICE
from vmq.store.entries import split_scope
from vmq.store.store import DAMAGED, Store

log = logging.getLogger("vmq.store")

#: Clients that a text names, and a log has lines for.
NAMED = 20


class DamageReport:
    """The damage of one store in words. They are found anew only when there is more of it."""

    def __init__(self, store: Store, registries: Mapping[str, Registry]) -> None:
        self._store = store
        self._registries = registries
        self._seen = (0, 0)
        self._reasons: list[str] = []
        self._told: set[tuple[str, str]] = set()

    def reasons(self) -> list[str]:
        """What is refused, until the store is mended; empty if nothing is."""
        store = self._store
        now = (0 if store.damage is None else len(store.damage.lost), len(store.refused))
        if now != self._seen:
            self._seen = now
            self._reasons = list(self._find())
        return self._reasons

    def tell(self) -> None:
        """Writes it to the log, and ends the connections of clients whose sessions are refused from now on.

        To be called when there is more of it, or less.
        """
        self._seen = (-1, -1)
        for reason in self.reasons():
            log.error("%s", reason)
        for registry, subscriber in self._refused():
            name = (registry.mountpoint, subscriber.client_id)
            if name not in self._told:
                self._told.add(name)
                if len(self._told) <= NAMED:
                    text, values = registry.named(subscriber.client_id)
                    template = text + " is refused: %s"
                    log.error(template, *values, DAMAGED)
            if subscriber.output is not None:
                subscriber.output.finish(DAMAGED + " [MQTT-4.8.0-2]", FAILED)

    def _refused(self) -> list[tuple[Registry, Subscriber]]:
        """The durable sessions of which something cannot be read."""
        store = self._store
        return [
            (registry, each)
            for registry in self._registries.values()
            for each in registry.subscribers.values()
            if each.queue.durable and store.refuses_session(each.queue.session)
        ]

    def _find(self) -> Iterator[str]:
        found = self._refused()
        if found:
            names = naming([each.client_id for _, each in found])
            yield f"the store is damaged: {len(found)} stored sessions are refused ({names}); {ADVICE}"
        damage = self._store.damage
        if damage is None:
            return
        for kind, what in (
            (b"s", "clients that are new or whose stored sessions are"),
            (b"r", "retained messages of topics"),
        ):
            for each in damage.lost:
                behind = bytes((kind[0] + 1,))
                if each.first < behind and each.last >= kind:
                    low, high = max(each.first, kind), min(each.last, behind)
                    where = f"from {_text(low, kind)} to {_text(high, kind)}"
                    verb = "refused" if kind == b"s" else "lost"
                    yield f"the store is damaged: {what} {where} are {verb}; {ADVICE}"
        if not found and not self._reasons_of_records():
            yield f"the store is damaged: a part of it that no session needs cannot be read; {ADVICE}"

    def _reasons_of_records(self) -> bool:
        damage = self._store.damage
        return damage is not None and (damage.touches(b"s") or damage.touches(b"r"))


def naming(clients: Sequence[str]) -> str:
    """The first of these clients by name, and how many more there are."""
    more = f" and {len(clients) - NAMED} more" if clients[NAMED:] else ""
    return ", ".join(clients[:NAMED]) + more


def _text(key: bytes, kind: bytes) -> str:
    """A client id or a topic of a key, as an operator is told of it."""
    if key[:1] != kind or key == kind:
        return "the first" if key <= kind else "the last"
    raw = key[1:].rstrip(b"\0")
    try:
        mountpoint, name = split_scope(key[1:])
    except UnicodeDecodeError:
        mountpoint, name = "", raw
    at = f" at mountpoint {mountpoint!r}" if mountpoint else ""
    return repr(name.rstrip(b"\0").decode(errors="replace")) + at
