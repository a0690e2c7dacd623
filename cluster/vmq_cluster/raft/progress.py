"""What a leader knows of the other replicas, and who waits for what."""

from typing import Final

#: No time yet, and no time to come.
NEVER: Final = float("-inf")
AT_NO_TIME: Final = float("inf")


class Progress:
    """What the leader knows of another replica.

    Args:
        end: the next offset to send.
        heard: when it answered last.
    """

    def __init__(self, end: int, heard: float) -> None:
        self.next = end
        self.heard = heard
        #: When something was sent last.
        self.sent = NEVER
        #: It has so much, as durable as promised; it counts for so much.
        self.match = 0
        self.counts = False
        #: Its log may differ: one message at a time until it agrees.
        self.probing = True
        #: Where the batches of each message end that is under way.
        self.flying: list[int] = []
        #: It lacks more than the last of them has.
        self.lacks_more = False
        #: The last round that it answered, its life, and whether it has nothing to wait for.
        self.round = 0
        self.life = 0
        self.quiet = False
        #: The commit index that it was told, and the log's first offset.
        self.told = 0
        self.told_first = 0
        #: The commit index that it said it knows.
        self.knows = 0
        #: It may have forgotten: the round after which it is told what is `enough` for it to count.
        self.returning: int | None = None
        self.enough: int | None = None
        #: When the log ended where, for learners: (time, end) until they have got there.
        self.lag: tuple[float, int] | None = None
        self.is_ready = False


class Transfer:
    """The leadership is to go to another replica; until then nothing is taken."""

    def __init__(self, to: str, until: float) -> None:
        self.to = to
        self.until = until
        #: When it was asked last to stand.
        self.asked = NEVER


class Waiting:
    """Who waits for what: appends for the commit index, questions for a round."""

    def __init__(self) -> None:
        self.appends: list[tuple[int, int]] = []
        self.questions: list[tuple[int, int]] = []
