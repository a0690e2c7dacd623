"""What can go wrong for a program that reads a group."""


class GroupError(Exception):
    """The broker refuses, for this reason; its `code` says so to programs, and may be empty."""

    def __init__(self, text: str, code: str = "", extra: dict[str, object] | None = None) -> None:
        super().__init__(text)
        self.code = code
        #: What else the broker says.
        self.extra = extra or {}


class BrokerAwayError(GroupError):
    """No broker answers, or cannot do it now; the same may succeed later."""


class FencedError(GroupError):
    """Partitions were another member's meanwhile: what was read of them counts for nothing, and comes again there."""

    def __init__(self, partitions: list[int]) -> None:
        names = ", ".join(map(str, partitions))
        super().__init__(
            f"partition {names} was not this member's any more: what it read there comes again, to whoever has it",
            "fenced",
        )
        self.partitions = partitions
