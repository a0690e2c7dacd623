"""Where a publication comes from: what of its publisher goes along with it, on the one path that all of them take.

A client's connection is the source of what it publishes; so it is for HTTP, plugins, bridges and programs that embed
the broker, which all publish by a client inside the process (`vmq.embedded`). Another node, the output of a query, and
the broker that gives a message on by itself each have a `Source`
of their own.
"""

from vmq.core.output import Output


class Source:
    """The publisher of the messages that are on their way with it; see `vmq.core.registry.Registry.publish`."""

    def __init__(self, output: Output, client_id: str = "", node: str = "") -> None:
        """`output` is `Outbox.nowhere` where no connection is."""
        self.output = output
        #: Whose messages they are to streams and plugins; "": nobody's here.
        self.client_id = client_id
        #: The node of the cluster where they were published; "": this one.
        self.node = node
        #: Some of them went to a stream, since this was looked at last.
        self.feeds_streams = False

    def publisher(self) -> Output | None:
        """What a full queue stops the reading of, and whose answers wait for other nodes; None: there is none."""
        output = self.output
        return None if output.closing else output

    def policy(self) -> str:
        """By which a member of a share group is chosen among nodes; "": by the broker's."""
        return ""
