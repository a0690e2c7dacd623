"""The groups of a cluster, as a node that has members of them knows it; without a cluster there are none."""

from collections.abc import Callable, Mapping
from typing import Protocol

from vmq.streams.groups.copying import Copying
from vmq.streams.groups.machine import Effect
from vmq.streams.groups.records import GroupKey
from vmq.streams.groups.share import GroupShare
from vmq.streams.groups.steps import PublishStep
from vmq.streams.groups.talk import FoundGroup


class GroupHere(Protocol):
    """The part of a group that a node has. Everything here is called in the event loop."""

    def obey(self, effects: list[Effect]) -> None:
        """Its members have other partitions."""

    def progress(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Where they are, by partition; and how often what comes next was sent for nothing."""

    def clients(self) -> dict[str, str]:
        """The clients of its members."""

    def moved(self) -> int:
        """Rows by which they are further than at `settle`."""

    def settle(self) -> None:
        """Where they are is on its way to the coordinator."""

    def refuse(self, why: str) -> None:
        """The coordinator will not have them."""


class OtherHosts(Protocol):
    """The hosts of a cluster, of which one has what another one has staged."""

    #: Told what nodes say of that.
    on_copy: Callable[[str, Copying], None]

    @property
    def store(self) -> str:
        """The name of this node's store."""

    def pass_on(self, node: str, saying: Copying) -> None:
        """Says something to a node; at most once."""

    def keepers(self) -> list[str]:
        """Nodes that can be reached, one of each host that is not this node's, in an order of preference."""

    def has_hosts(self) -> bool:
        """Whether there is another host than this node's."""

    def is_lost(self, store: str) -> bool:
        """Whether a store is not in the cluster any more: its node has another one, or is no member."""


class GroupsElsewhere(OtherHosts, Protocol):
    """The coordinator of all groups, wherever it is. Everything here is called in the event loop."""

    def share_of(self, key: GroupKey) -> GroupShare:
        """This node's part of a group."""

    def begin(self, key: GroupKey, group: GroupHere) -> None:
        """The group has members on this node."""

    def end(self, key: GroupKey) -> None:
        """It has none any more; what they gave back is said all the same."""

    def on_changed(self, key: GroupKey) -> None:
        """The coordinator is to hear at once."""

    async def kept(self, key: GroupKey) -> None:
        """Returns once the coordinator keeps where the group's members on this node are now.

        Raises:
            PassingError: it does not answer.
        """

    async def decided(self, key: GroupKey, step: PublishStep) -> bool:
        """Whether a commit that publishes is accepted; its messages are on the disk. Waits until that is known."""

    # What an operator asks

    async def listed(self, group: str) -> list[FoundGroup]:
        """The groups of a name, or all.

        Raises:
            StreamError: nobody answers.
        """

    async def change(
        self, key: GroupKey, positions: Mapping[int, int] | None, stream: str = ""
    ) -> None:
        """Has a group without members begin elsewhere in a stream; without positions it is forgotten.

        Raises:
            StreamError: it has members, or nobody answers.
        """
