"""What nodes tell each other of consumer groups; what it says is the groups' own matter (`vmq.streams.groups.talk`)."""

from vmq.clustering.messages.base import NodeMessage


class GroupTalk(NodeMessage, frozen=True, tag=67):
    """One thing that is said of groups; at most once."""

    payload: bytes
