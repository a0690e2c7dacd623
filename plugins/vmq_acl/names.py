"""The names of a client, and the levels of a pattern that are made of them."""

import re
from typing import Final

import msgspec

#: What a pattern may contain: user name, client id, mountpoint.
PLACEHOLDER: Final = re.compile("%[ucm]")

_WILD: Final = frozenset("+#")


class Names(msgspec.Struct, frozen=True):
    """Who a client says that it is."""

    username: str | None
    client_id: str
    mountpoint: str = ""

    @property
    def are_wild(self) -> bool:
        """Whether a wildcard hides in a name: no pattern grants such a client anything."""
        return not (_WILD.isdisjoint(self.client_id) and _WILD.isdisjoint(self.username or ""))

    def value(self, placeholder: str) -> str | None:
        """What stands for `%u`, `%c` or `%m`."""
        match placeholder:
            case "%u":
                return self.username
            case "%c":
                return self.client_id
            case _:
                return self.mountpoint

    def fits_level(self, placeholder: str) -> bool:
        """Whether the name, put into a filter, is a word and nothing else.

        A client chooses its id, and may choose its user name: one with `/` would reach into another
        client's topics, one with a leading `$` into the broker's, one with a wildcard everywhere.
        """
        value = self.value(placeholder) or ""
        return value != "" and value[0] != "$" and "/" not in value and _WILD.isdisjoint(value)


def placeholders(text: str) -> frozenset[str]:
    """The placeholders in a filter, or in one of its levels."""
    return frozenset(PLACEHOLDER.findall(text))


def fill(level: str, names: Names) -> str:
    """A level with the names in their places. Only for names that fit."""
    return PLACEHOLDER.sub(lambda found: names.value(found[0]) or "", level)
