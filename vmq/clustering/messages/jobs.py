"""What nodes tell each other of jobs; what it says is the jobs' own matter (`vmq.jobs.sharing.messages`)."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeAnswer, NodeMessage, Question


class JobTalk(NodeMessage, frozen=True, tag=70):
    """Some messages of jobs, from one pass; at most once."""

    payload: bytes


class AskJobs(NodeMessage, frozen=True, tag=71):
    """An operation of the API on jobs, as JSON, for what the asked node has."""

    question: Question
    operation: Annotated[str, Meta(max_length=64)]
    parameters: Annotated[bytes, Meta(max_length=65_536)]


class JobsFound(NodeAnswer, frozen=True, tag=72):
    """What the operation gave: a status as HTTP has it, and JSON, or why not."""

    status: Annotated[int, Meta(ge=100, le=599)]
    body: bytes


JobMessage = JobTalk | AskJobs | JobsFound
