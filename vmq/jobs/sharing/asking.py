"""Whether a job was added by another node, of which this one hears anew: its publisher came here, who was not answered.

All nodes in reach are asked, that to which it came first among them. Who knows the job says so once it is on its hosts;
if nobody does it is to be added here, under the same id. What is done and forgotten everywhere is known to the node to
which it came alone, for the rest of its life.
"""

from typing import Final

from vmq.jobs.queue import WAITING, Job
from vmq.jobs.sharing.adding import CopyAdder
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.keys import KeyClaims
from vmq.jobs.sharing.messages import Added, IsAdded
from vmq.jobs.sharing_port import Told

#: Seconds until those that did not answer are asked again, and until all are where some member was not heard yet.
_PATIENCE: Final = 2.0
_AGAIN: Final = 0.1


class AddedQuestion:
    """A job that others are asked for."""

    def __init__(self) -> None:
        #: Nodes that have not answered, and until when they may.
        self.left: set[int] = set()
        self.until = 0.0
        #: Some member was not heard yet: it may know of the job.
        self.is_early = False
        #: Who is to be told, and until when that is worth something to him.
        self.told: list[tuple[float, Told]] = []


class AddedQuestions:
    """Those of one node, and its answers to others."""

    def __init__(self, here: SharingContext, adder: CopyAdder, keys: KeyClaims) -> None:
        self.here = here
        self.machine = here.machine
        self.adder = adder
        self.keys = keys
        self.questions: dict[bytes, AddedQuestion] = {}

    def receive(self, sender: int, entry: IsAdded | Added, now: float) -> None:
        """Takes a message of another node."""
        if isinstance(entry, IsAdded):
            self.on_asked(sender, entry.job, now)
        else:
            self.on_added(sender, entry, now)

    # Asking

    def ask(self, job_id: bytes, deadline: float, told: Told, now: float) -> None:
        """Has somebody told whether another node has added a job; not at all, if that is not known by a deadline."""
        question = self.questions.get(job_id)
        if question is None:
            question = self.questions[job_id] = AddedQuestion()
            question.told.append((deadline, told))
            self._begin(job_id, question, now)
        else:
            question.told.append((deadline, told))

    def _begin(self, job_id: bytes, question: AddedQuestion, now: float) -> None:
        question.left = set(self.here.peers.up)
        question.is_early = self.keys.is_meeting(now)
        self._send(job_id, question, now)
        self._look_at(job_id, question, now)

    def _send(self, job_id: bytes, question: AddedQuestion, now: float) -> None:
        question.until = now + _PATIENCE
        self.here.tell(list(question.left), IsAdded(job_id))

    def _look_at(self, job_id: bytes, question: AddedQuestion, now: float) -> None:
        if question.left:
            return
        if question.is_early:
            question.until = now + _AGAIN
        else:
            self._end(job_id, question, False)

    def _end(self, job_id: bytes, question: AddedQuestion, is_added: bool) -> None:
        del self.questions[job_id]
        for _, told in question.told:
            told(is_added)

    def on_added(self, sender: int, added: Added, now: float) -> None:
        """Another node has looked for a job."""
        question = self.questions.get(added.job)
        if question is None:
            return
        if added.is_added:
            self._end(added.job, question, True)
        else:
            question.left.discard(sender)
            self._look_at(added.job, question, now)

    def on_down(self, node: int, now: float) -> None:
        """A node cannot be reached: it is not waited for."""
        for job_id, question in list(self.questions.items()):
            if node in question.left:
                question.left.discard(node)
                self._look_at(job_id, question, now)

    def tick(self, now: float) -> None:
        """Asks again who did not answer; who has waited too long is told nothing."""
        for job_id, question in list(self.questions.items()):
            question.told = [each for each in question.told if now < each[0]]
            if not question.told:
                del self.questions[job_id]
            elif now >= question.until and question.left:
                self._send(job_id, question, now)
            elif now >= question.until:
                self._begin(job_id, question, now)

    # Answering

    def on_asked(self, sender: int, job_id: bytes, now: float) -> None:
        """Another node hears anew of a job."""
        jobs = self.machine.arrived.get(job_id)
        if jobs is None:
            job = self.machine.find(job_id)
            if job is None:
                self.here.send(sender, Added(job_id, False))
                return
            jobs = [job]

        def told(is_there: bool) -> None:
            if is_there:
                self.here.send(sender, Added(job_id, True))

        self.when_there(jobs, now + _PATIENCE, told)

    def when_there(self, jobs: list[Job], deadline: float, told: Told) -> None:
        """Has somebody told once jobs are on their hosts; or that they are not by a deadline, and go on all the same.

        One that went for another with its key was told to be there.
        """
        left = [each for each in jobs if each.state == WAITING or not each.is_gone]
        left = [each for each in left if not each.twin]
        if not left:
            told(True)
            return
        count = len(left)

        def on_one(is_there: bool) -> None:
            nonlocal count
            if count > 0:
                count = count - 1 if is_there else 0
                if not count:
                    told(is_there)

        for job in left:
            job.is_vouched = True
            self.adder.wait(job, deadline, on_one, adds=False)
