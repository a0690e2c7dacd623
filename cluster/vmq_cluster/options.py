"""What can be tuned, with its defaults. Times are in seconds, sizes in bytes."""

from dataclasses import dataclass, fields

from vmq_cluster.errors import ClusterError


@dataclass(slots=True, frozen=True)
class Options:
    """The options of one node. All nodes of a cluster may differ."""

    #: How often every member is told that this node lives.
    heartbeat_interval: float = 1.0
    #: A member that was silent for so long is down; for up to three times as long, where answers take long.
    heartbeat_timeout: float = 3.0
    #: A member that was down for so long is taken out of the cluster; 0: never.
    dead_node_timeout: float = 0.0
    #: A graceful leave ends after so long, whatever the others have seen.
    leave_timeout: float = 60.0

    #: Announcements of broadcasts gather for so long.
    lazy_interval: float = 0.2
    #: A broadcast that was announced and has not come after so long is asked for. The announcement itself comes late,
    #: by half of `lazy_interval` on average, so what is missing then is no race but a hole in the tree: nodes that
    #: write at once cut some. VerneMQ asks at once, of announcements that it makes once a second.
    graft_timeout: float = 0.1
    #: Announcements that wait for one peer; more are dropped, and anti-entropy makes up for them.
    max_lazy: int = 8192
    #: Announced broadcasts that are waited for; more are left to anti-entropy.
    max_missing: int = 8192

    #: How often this node compares clocks with one other.
    sync_interval: float = 10.0
    #: A request of an exchange is repeated after so long, and given up after so many times.
    sync_timeout: float = 3.0
    sync_attempts: int = 3
    #: What one batch of an exchange holds at most.
    sync_entries: int = 500
    sync_bytes: int = 256 * 1024
    #: How many deleted keys one tick forgets at most.
    collect_keys: int = 500

    #: What waits for one peer at most of payloads that arrive at most once.
    unreliable_bytes: int = 8 * 1024 * 1024
    #: What is under way to one peer at most.
    window_bytes: int = 4 * 1024 * 1024
    #: What one peer has sent and this node has not confirmed, above which it takes no more; above the peers' windows.
    held_bytes: int = 16 * 1024 * 1024
    #: What one message of a channel holds at most, unless one payload alone is larger.
    batch_bytes: int = 256 * 1024
    #: Payloads that were not acknowledged for so long are sent again.
    resend_timeout: float = 1.0

    def __post_init__(self) -> None:
        """Raises `ClusterError` where an option makes no sense."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 0 or (value == 0 and each.name != "dead_node_timeout"):
                raise ClusterError(f"{each.name} is {value}, and must be above 0")
        if self.heartbeat_timeout < 2 * self.heartbeat_interval:
            raise ClusterError(
                f"heartbeat_timeout is {self.heartbeat_timeout}, and must be at least "
                f"twice heartbeat_interval, which is {self.heartbeat_interval}"
            )
