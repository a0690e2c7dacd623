"""Which rows of a column of topics match an MQTT topic filter."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import SHARE_PREFIX, check_filter, has_wildcard, matches
from vmq.streams.log.errors import StreamError

#: Topics whose verdict is remembered.
_MOST: Final = 65_536


class TopicFilter:
    """A filter that is asked once for each topic, not for each row.

    Raises:
        StreamError: the text is no topic filter.
    """

    def __init__(self, text: str) -> None:
        try:
            check_filter(text)
        except ProtocolError as error:
            raise StreamError(f"not a topic filter: {error}") from None
        if text.startswith(SHARE_PREFIX):
            raise StreamError("not a topic filter: a stream is not shared by $share/group/")
        self.text = text
        self.verdicts: dict[str, bool] = {}

    def matches(self, topic: str) -> bool:
        """Whether one topic matches."""
        verdict = self.verdicts.get(topic)
        if verdict is None:
            if len(self.verdicts) >= _MOST:
                self.verdicts.clear()
            self.verdicts[topic] = verdict = matches(self.text, topic)
        return verdict

    def mask(self, topics: pa.Array) -> pa.BooleanArray | None:
        """True where a row's topic matches; None if all do."""
        if not has_wildcard(self.text):
            return pc.equal(topics, self.text)
        encoded = topics.dictionary_encode()
        verdicts = [self.matches(topic) for topic in encoded.dictionary.to_pylist()]
        if all(verdicts):
            return None
        return pc.take(pa.array(verdicts, pa.bool_()), encoded.indices)
