"""What a machine tells of its jobs, to be kept; and what it asks of what is kept."""

from typing import Final

from vmq.jobs.queue import Job

#: What happened to a job.
ADDED: Final = 0
TAKEN: Final = 1
RETURNED: Final = 2
NACKED: Final = 3
GONE: Final = 4
BURIED: Final = 5
REVIVED: Final = 6
SET_ASIDE: Final = 7
#: Its key keeps nobody out any more.
RELEASED: Final = 8
#: Other nodes may have it, from now on these.
SHARED: Final = 9
#: It is done, and not all of them know.
DONE: Final = 10
#: Added behind another in the same pass, and but for its id and when that was the same.
ADDED_ALIKE: Final = 11
#: The same, and the same nodes may have it.
SHARED_ALIKE: Final = 13
#: In an index: the body of the next job lies there, which stands where a job's number does.
PLACED: Final = 12
#: Whoever it was given to did not look at it: it is queued again, and was not delivered.
GIVEN_BACK: Final = 14
#: The last line of its history is new.
NOTED: Final = 15


class JobRecord:
    """Keeps nothing: that of a broker whose jobs are in memory only. Subclasses write."""

    def note(self, event: int, job: Job) -> None:
        """Something happened to a job; ADDED is the first, GONE the last."""

    def body(self, job: Job) -> bytes:
        """The body of a job that has none in memory.

        Raises:
            OSError: the disk.
        """
        return b""

    def forget(self, job: Job) -> None:
        """A job is gone, and the key that outlives it has ended."""
