"""Protection that goes is told: what everybody may do once no plugin is asked, and what new code serves no more."""

from collections.abc import Iterable
from typing import Final

from vmq.core.hook_sites import Hooks

#: What holds where no plugin serves a hook.
OPEN: Final = {
    "auth_on_register": "no plugin checks who connects: where anonymous clients may connect (allow_anonymous), "
    "everybody may, under any name; elsewhere nobody can log in",
    "auth_on_publish": "no plugin is asked about publishing: every client may publish to every topic",
    "auth_on_subscribe": "no plugin is asked about subscribing: every client may subscribe to every topic filter",
    "auth_on_unsubscribe": "no plugin is asked about unsubscribing: every client may end its subscriptions",
}


def unguarded(sites: Iterable[Hooks]) -> frozenset[str]:
    """The hooks that no plugin serves, for the clients of some listener at least."""
    return frozenset(name for hooks in sites for name in OPEN if getattr(hooks, name) is None)


def told(before: frozenset[str], after: frozenset[str]) -> list[str]:
    """What everybody may do since a change of plugins."""
    return [text for hook, text in OPEN.items() if hook in after - before]


def lost(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """The auth hooks that a plugin serves no more."""
    return sorted((set(old) - set(new)) & OPEN.keys())
