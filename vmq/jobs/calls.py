"""Programs inside the process and other nodes, in the places of clients."""

from collections.abc import Callable

from vmq.jobs.commit import JobOutput
from vmq.jobs.queue import Job, JobQueue, JobWaiter


class CallWaiter(JobWaiter):
    """Has a function called with the jobs that it waits for."""

    def __init__(
        self, queues: list[JobQueue], count: int, served: Callable[[list[Job]], None]
    ) -> None:
        super().__init__(queues, count)
        self.served = served

    def serve(self, jobs: list[Job]) -> None:
        self.served(jobs)


class NodeOutput(JobOutput):
    """What goes to another node, once a pass is safe; what is not safe does not go."""

    def __init__(self, close: Callable[[], None], post: Callable[[bytes], None]) -> None:
        super().__init__()
        #: Completes what is being said.
        self.close = close
        self.post = post

    def take(self) -> bytes:
        self.close()
        return super().take()

    def write(self, data: bytes) -> None:
        self.post(data)


class CallOutput(JobOutput):
    """Has a function called once a pass is safe: with nothing, or with why it is not."""

    def __init__(self, done: Callable[[str], None]) -> None:
        super().__init__()
        self.done = done

    def write(self, data: bytes) -> None:
        self.done("")

    def cut(self, reason: str) -> None:
        self.done(reason)
