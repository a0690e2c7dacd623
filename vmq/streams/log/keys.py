"""What decides the partition of a message."""

import crc32c
import pyarrow as pa
import pyarrow.compute as pc

from vmq.config.streams import StreamOptions


class Keys:
    """The key of each message of a stream, and the partition that it leads to.

    The partition is a function of the key and the number of partitions only, so that it is the same
    after a restart and on every node.
    """

    def __init__(self, options: StreamOptions) -> None:
        self.kind = options.key
        self.level = options.key_level
        self.partitions = options.partitions

    def of(self, topic: bytes, client_id: str) -> bytes:
        """The key of one message; empty where the topic has too few levels."""
        if self.level:
            return level_of(topic, self.level)
        return topic if self.kind == "topic" else client_id.encode()

    def of_few(self, topics: list[bytes], clients: list[bytes]) -> list[bytes]:
        """Those of some messages whose client ids are bytes already."""
        if self.level:
            return [level_of(topic, self.level) for topic in topics]
        return topics if self.kind == "topic" else clients

    def partition(self, key: bytes) -> int:
        """The partition of a key."""
        return int(crc32c.crc32c(key)) % self.partitions

    def column(self, topics: pa.StringArray, clients: pa.StringArray) -> pa.BinaryArray:
        """The keys of many messages."""
        if not self.level:
            return (topics if self.kind == "topic" else clients).cast(pa.binary())
        encoded = topics.dictionary_encode()
        levels = [level_of(each.encode(), self.level) for each in encoded.dictionary.to_pylist()]
        return pc.take(pa.array(levels, pa.binary()), encoded.indices)


def level_of(topic: bytes, level: int) -> bytes:
    """One level of a topic, counted from 1; empty if there are fewer."""
    words = topic.split(b"/", level)
    return words[level - 1] if len(words) >= level else b""
