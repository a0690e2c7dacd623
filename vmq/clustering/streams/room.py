"""Which nodes have room for more partitions: each takes as many as its `limits.max_partitions` says."""

from collections.abc import Iterable, Mapping


class PartitionRoom:
    """How many partitions nodes have, and take. Copies count, and so does what a node owns alone.

    Args:
        limits: what nodes take; 0, or nothing: as many as there are.
        had: what they have.
    """

    def __init__(self, limits: Mapping[str, int], had: Mapping[str, int]) -> None:
        self._limits = {node: most for node, most in limits.items() if most}
        self._had = had

    def left(self, node: str, most: int) -> int:
        """How many more a node takes, `most` at most."""
        limit = self._limits.get(node)
        return most if limit is None else max(0, min(most, limit - self._had.get(node, 0)))

    def lacks_for_copies(self, nodes: Iterable[str], partitions: int, copies: int) -> str:
        """Why these nodes cannot have some partitions, each with copies on so many of them; "" if they can.

        Where they are fewer than copies it is not room that is lacking: that is said where partitions are placed.
        """
        there = list(nodes)
        if (
            len(there) < copies
            or sum(self.left(each, partitions) for each in there) >= partitions * copies
        ):
            return ""
        return self._why(there, f"{partitions} partitions of {copies} copies each")

    def lacks_for(self, wanted: Mapping[str, int]) -> str:
        """Why nodes cannot have so many partitions more; "" if they can."""
        full = [node for node, count in wanted.items() if self.left(node, count) < count]
        return self._why(full, f"{sum(wanted.values())} partitions") if full else ""

    def _why(self, nodes: Iterable[str], what: str) -> str:
        bounded = [each for each in sorted(nodes) if each in self._limits]
        have = "; ".join(
            f"node {each} has {self._had.get(each, 0)} of {self._limits[each]}" for each in bounded
        )
        return f"no room for {what}: {have} (limits.max_partitions); accepted: fewer, or more nodes"
