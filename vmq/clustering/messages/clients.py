"""What nodes say to each other of a client that comes to one of them and has a connection to another."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage

#: Mountpoint and client id.
Who = tuple[str, str]

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Mountpoint = Annotated[str, Meta(max_length=255)]
ClientId = Annotated[str, Meta(min_length=1, max_length=65_535)]


class AboutClient(NodeMessage, frozen=True):
    """About one client."""

    mountpoint: Mountpoint
    client_id: ClientId

    @property
    def who(self) -> Who:
        return (self.mountpoint, self.client_id)


class ClaimSession(AboutClient, frozen=True, tag=10):
    """To the node that has its connection: the client has come to `node`, close it [MQTT-3.1.4-2]."""

    node: Name
    #: Nothing of the session goes on. Always true: what does is in a slot.
    clean: bool = True
    #: Nodes that it was sent on by, each in the belief that the next one has the client.
    hops: Annotated[int, Meta(ge=0, le=16)] = 0


class SessionFree(AboutClient, frozen=True, tag=11):
    """To who claimed it: there is no connection, or none any more."""


ClientMessage = ClaimSession | SessionFree
