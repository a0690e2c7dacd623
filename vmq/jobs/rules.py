"""What holds for the jobs of one queue where whoever adds one says nothing else."""

from typing import Final

#: How durable a job is before it is acknowledged (`persistence`).
OFF: Final = 0
OS: Final = 1
FSYNC: Final = 2


class JobRules:
    """The rules of one queue. Times are in seconds."""

    def __init__(self) -> None:
        #: Until a job that was taken is given again; the last one holds for all later times. 0 is never.
        self.retry: list[int] = [300]
        #: How long a job lives at most.
        self.ttl: int = 86_400
        self.priority: int = 0
        #: Jobs that may be queued; 0 is no limit.
        self.maxlen: int = 0
        #: Times that a job is given to workers before it goes to the dead letters; 0 is no limit.
        self.max_deliveries: int = 20
        #: How long dead letters are kept, and how many of them.
        self.dead_ttl: int = 14 * 86_400
        self.dead_maxlen: int = 10_000
        #: How long a key keeps a second job out.
        self.key_window: int = 3600
        self.persistence: int = OS
        #: On so many hosts a job is before it is acknowledged, if there are so many; and whether fewer will do while
        #: others cannot be reached.
        self.replicate: int = 3
        self.may_have_fewer = False
        #: Each of these gets each job, in a queue of its own, `QUEUE@GROUP`; none: the queue itself does.
        self.groups: list[bytes] = []
        #: How long a worker of MQTT may be at one job while its connection lives.
        self.max_run: int = 12 * 3600
        #: How long a publisher of MQTT waits for what cannot be added now.
        self.refuse_after: int = 30

    def retry_after(self, deliveries: int) -> int:
        """Seconds until a job that was delivered so often is given again; 0 is never."""
        ladder = self.retry
        return ladder[min(deliveries, len(ladder)) - 1] if deliveries > 0 else ladder[0]
