"""Topic names and topic filters: validation, splitting, matching (section 4.7)."""

import sys
from typing import Final

from vmq.mqtt.packets import ProtocolError

SHARE_PREFIX: Final = "$share/"

DIGITS: Final = frozenset("0123456789")


def decode_text(raw: bytes, what: str) -> str:
    """The text of a UTF-8 field.

    Python's strict decoder refuses overlong forms and surrogates, as section 1.5.3 demands, and
    keeps U+FEFF [MQTT-1.5.3-3].

    Raises:
        ProtocolError: the bytes are not well-formed UTF-8, or contain U+0000.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("ill-formed UTF-8 in " + what, "MQTT-1.5.3-1") from None
    if "\0" in text:
        raise ProtocolError("U+0000 in " + what, "MQTT-1.5.3-2")
    return text


def decode_topic_name(raw: bytes, what: str = "topic name") -> str:
    """The text of a topic name: not empty, no wildcard.

    Raises:
        ProtocolError: the bytes are no topic name.
    """
    text = decode_text(raw, what)
    if not text:
        raise ProtocolError("empty " + what, "MQTT-4.7.3-1")
    if "+" in text or "#" in text:
        raise ProtocolError("wildcard in " + what, "MQTT-3.3.2-2")
    return text


def decode_filter(raw: bytes) -> str:
    """The text of a topic filter, which may be `$share/group/filter`.

    Raises:
        ProtocolError: the bytes are no topic filter.
    """
    text = decode_text(raw, "topic filter")
    check_filter(text)
    return text


def check_filter(text: str) -> None:
    """Checks where wildcards stand in a topic filter, and the form of a shared subscription.

    Raises:
        ProtocolError: the filter is empty or ill-formed.
    """
    if not text:
        raise ProtocolError("empty topic filter", "MQTT-4.7.3-1")
    if text.startswith(SHARE_PREFIX):
        group, _, rest = text[len(SHARE_PREFIX) :].partition("/")
        if not group or "+" in group or "#" in group:
            raise ProtocolError("ill-formed share name in " + repr(text[:80]), "MQTT-4.7.1-2")
        if not rest:
            raise ProtocolError("shared subscription without a topic filter", "MQTT-4.7.3-1")
        text = rest
    if "#" not in text and "+" not in text:
        return
    words = text.split("/")
    last = len(words) - 1
    for index, word in enumerate(words):
        if "#" in word and (word != "#" or index != last):
            raise ProtocolError("misplaced # in filter " + repr(text[:80]), "MQTT-4.7.1-2")
        if "+" in word and word != "+":
            raise ProtocolError("misplaced + in filter " + repr(text[:80]), "MQTT-4.7.1-3")


def split_shared(topic_filter: str) -> tuple[str, str]:
    """The share group ("" if the subscription is not shared) and the filter itself."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return "", topic_filter
    group, _, rest = topic_filter[len(SHARE_PREFIX) :].partition("/")
    return group, rest


def has_wildcard(topic_filter: str) -> bool:
    """Whether a filter can match more than the one topic that it spells."""
    return "+" in topic_filter or "#" in topic_filter


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a filter matches a topic name, word by word (section 4.7.1).

    The trie answers the same question for many filters at once; this is the plain form.
    """
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):  # [MQTT-4.7.2-1]
        return False
    filter_words = topic_filter.split("/")
    topic_words = topic.split("/")
    for index, word in enumerate(filter_words):
        if word == "#":
            return True
        if index >= len(topic_words):
            return False
        if word != "+" and word != topic_words[index]:
            return False
    return len(filter_words) == len(topic_words)


def covers(wider: str, narrower: str) -> bool:
    """Whether every topic that matches one filter matches another, wider one."""
    if narrower.startswith("$") and wider[:1] in ("+", "#"):  # [MQTT-4.7.2-1]
        return False
    wide = wider.split("/")
    narrow = narrower.split("/")
    for index, word in enumerate(wide):
        if word == "#":
            return True
        if index >= len(narrow) or narrow[index] == "#":
            return False
        if word != "+" and word != narrow[index]:
            return False
    return len(wide) == len(narrow)


def overlaps(one: str, other: str) -> bool:
    """Whether some topic name matches both of two filters."""
    for first, second in ((one, other), (other, one)):
        if first.startswith("$") and second[:1] in ("+", "#"):  # [MQTT-4.7.2-1]
            return False
    ones, others = one.split("/"), other.split("/")
    for index in range(max(len(ones), len(others))):
        word = ones[index] if index < len(ones) else ""
        against = others[index] if index < len(others) else ""
        if word == "#" or against == "#":
            # "+" and "/#" have the empty text in common, which is no topic name [MQTT-4.7.3-1].
            return sorted((one, other)) != ["+", "/#"]
        if index >= len(ones) or index >= len(others):
            return False
        if word != against and word != "+" and against != "+":
            return False
    return True


def joined(words: list[str], index: int) -> str | None:
    """The words from an index on, as text; None if there are none."""
    return interned("/".join(words[index:])) if index < len(words) else None


def interned(word: str) -> str:
    """A word as one object with its likes, if many filters and topics may have it.

    Words with digits tell devices and clients apart: to intern those would take more memory than it saves.
    """
    return sys.intern(word) if word.isalpha() or DIGITS.isdisjoint(word) else word


def common_words(rest: list[str], words: list[str], index: int) -> int:
    """How many words `rest` has in common with those from an index on, from its first one."""
    most = min(len(rest), len(words) - index)
    for number in range(most):
        if rest[number] != words[index + number]:
            return number
    return most


def stands_at(rest: str, topic: str, offset: int) -> bool:
    """Whether the levels in `rest` are those of a topic from an offset on."""
    end = offset + len(rest)
    return topic.startswith(rest, offset) and (end == len(topic) or topic[end] == "/")


def text_size(text: str) -> int:
    """Bytes of memory that the characters of a text take at most."""
    return len(text) if text.isascii() else 4 * len(text)
