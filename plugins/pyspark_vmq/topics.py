"""Which topics an MQTT topic filter matches, for rows that no broker has filtered."""

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: Topics whose verdict is remembered.
MOST: Final = 65_536


class TopicFilter:
    """A filter that is asked once for each topic, not for each row. It was checked with the options."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.has_wildcard = "+" in text or "#" in text
        self.pattern = re.compile(pattern_of(text), re.DOTALL)
        self.verdicts: dict[str, bool] = {}

    def matches(self, topic: str) -> bool:
        """Whether one topic matches."""
        verdict = self.verdicts.get(topic)
        if verdict is None:
            if len(self.verdicts) >= MOST:
                self.verdicts.clear()
            self.verdicts[topic] = verdict = self.pattern.fullmatch(topic) is not None
        return verdict

    def mask(self, topics: "pa.Array") -> "pa.BooleanArray | None":
        """True where a row's topic matches; None if all do."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.has_wildcard:
            return pc.equal(topics, self.text)
        encoded = topics.dictionary_encode()
        verdicts = [self.matches(topic) for topic in encoded.dictionary.to_pylist()]
        if all(verdicts):
            return None
        return pc.take(pa.array(verdicts, pa.bool_()), encoded.indices)


def pattern_of(text: str) -> str:
    """A filter as a regular expression.

    A wildcard in front does not match topics that begin with a dollar sign [MQTT-4.7.2-1]; `#` also stands for
    the level above it.
    """
    parts: list[str] = []
    for level in text.split("/"):
        if level == "#":
            parts.append("(?:/.*)?" if parts else ".*")
            break
        parts.append(("/" if parts else "") + ("[^/]*" if level == "+" else re.escape(level)))
    return ("(?!\\$)" if text[0] in "+#" else "") + "".join(parts)
