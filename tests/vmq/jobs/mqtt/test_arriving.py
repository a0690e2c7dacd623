"""Jobs that came to another node before; over several nodes: `tests/vmq/jobs/sharing/test_moving.py`."""

import pytest

from tests.vmq.jobs.support import machine_of
from vmq.jobs.commit import JobCommit, JobWriter
from vmq.jobs.mqtt.arriving import JobArrival
from vmq.jobs.queue import Job
from vmq.jobs.rules import JobRules


class Row:
    """A message as its publisher's session knows it: another node was asked to add its job."""

    is_new = False
    closing = False

    def __init__(self) -> None:
        self.publisher = self
        self.is_done = False

    def done(self, _then: object) -> None:
        self.is_done = True

    def drop(self, reason: str) -> None:
        raise AssertionError(reason)


@pytest.mark.parametrize("repeats", [True, False])
def test_what_may_be_given_once_only_is_not_added_again(repeats: bool) -> None:
    machine = machine_of(lambda _: JobRules())
    row, added = Row(), list[bytes]()

    def add(job_id: bytes, _name: bytes) -> list[Job]:
        added.append(job_id)
        return []

    arrival = JobArrival(JobCommit(machine, JobWriter(), lambda: 0.0), row, lambda then: then())
    arrival.take(machine.ids.new(60, repeats), b"mail", add)
    arrival.one()
    assert row.is_done
    assert len(added) == repeats
