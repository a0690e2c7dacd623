"""What nodes tell each other of jobs; what it says is the jobs' own matter (`vmq.jobs.sharing.messages`)."""

from vmq.clustering.messages.base import NodeMessage


class JobTalk(NodeMessage, frozen=True, tag=70):
    """Some messages of jobs, from one pass; at most once."""

    payload: bytes
