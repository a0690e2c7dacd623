"""The options of sessions for which auth_on_register changed some.

Sessions with the same changes share one set. When the broker's options change, the sets follow in
place, their own changes kept.
"""

from typing import Any, Final

from vmq_hooks.modifiers import RegisterModifiers

from vmq.core.context import CoreOptions
from vmq.core.ports import SessionOptionsPort

#: Different sets that follow the broker's options. Those of sessions beyond that stay as they were made.
LIMIT: Final = 4096

#: Modifier -> option. Names differ where units or wording do.
_OPTIONS: Final = {
    "max_message_size": "max_message_size",
    "max_inflight_messages": "max_inflight_messages",
    "max_online_messages": "max_online_messages",
    "max_offline_messages": "max_offline_messages",
    "max_msgs_per_drain_step": "max_msgs_per_drain_step",
    "upgrade_qos": "upgrade_outgoing_qos",
    "shared_subscription_policy": "shared_subscription_policy",
    "allow_register": "allow_register_during_netsplit",
    "allow_publish": "allow_publish_during_netsplit",
    "allow_subscribe": "allow_subscribe_during_netsplit",
    "allow_unsubscribe": "allow_unsubscribe_during_netsplit",
}

Changes = tuple[tuple[str, Any], ...]


class SessionOverrides(SessionOptionsPort):
    """Makes and keeps the sets, on top of the broker's options."""

    def __init__(self, base: CoreOptions) -> None:
        super().__init__()
        self._base = base
        self._names = [name for name in dir(base) if not name.startswith("_")]
        self._made: dict[Changes, CoreOptions] = {}

    def of(self, modifiers: RegisterModifiers) -> CoreOptions:
        """The options of a session with these modifiers: the broker's own if they change none."""
        changes = changes_of(modifiers)
        if not changes:
            return self._base
        found = self._made.get(changes)
        if found is None:
            if len(self._made) >= LIMIT:
                self._made.clear()
            self._made[changes] = found = CoreOptions()
            self._fill(found, changes)
        return found

    def refresh(self) -> None:
        """The broker's options have changed."""
        for changes, options in self._made.items():
            self._fill(options, changes)

    def _fill(self, options: CoreOptions, changes: Changes) -> None:
        for name in self._names:
            setattr(options, name, getattr(self._base, name))
        for name, value in changes:
            setattr(options, name, value)
        options.own = tuple(name for name, _ in changes)


def changes_of(modifiers: RegisterModifiers) -> Changes:
    """What modifiers change among the options, in the options' names and units."""
    found: list[tuple[str, Any]] = []
    for modifier, option in _OPTIONS.items():
        value = getattr(modifiers, modifier)
        if value is not None:
            found.append((option, value))
    if modifiers.queue_type is not None:
        found.append(("lifo", modifiers.queue_type == "lifo"))
    if modifiers.retry_interval is not None:
        found.append(("retry_interval", modifiers.retry_interval / 1000))
    return tuple(found)
