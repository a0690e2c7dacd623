"""acl.conf of EMQX 5, in Erlang's terms, as rules of vmq_acl.

EMQX takes the first rule that fits. In vmq_acl a denial wins wherever it stands, it denies reading and writing at once,
and what no rule allows is refused. So a rule that allows loses what an earlier denial takes from it as a whole, and an
earlier denial of a part is written down. Where that is not the same, what is written allows less, and it is told.
"""

import enum
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from vmq.cli.importing.rules import Imported, ImportProblem, Setting

#: A topic that nobody uses. Its denial refuses the filters that match everything there, and nothing else.
UNUSED: Final = "vmq-import-nobody"
#: Rules that come with EMQX and are in force where the configuration names no source.
SHIPPED: Final = '{deny, all, subscribe, ["$SYS/#", {eq, "#"}, {eq, "+/#"}]}.\n{allow, all}.\n'

_TERM: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"|%[^\n]*|[{}\[\],.]|[A-Za-z_]\w*|[^\s{}\[\],."%]+|\S', re.DOTALL
)
_PLACEHOLDERS: Final = {"${clientid}": "%c", "${username}": "%u"}
_ANY_PLACEHOLDER: Final = re.compile(r"\$\{|%[ucm]")
_ACCEPTED: Final = (
    'accepted: {allow or deny, WHO} or {allow or deny, WHO, publish or subscribe or all, ["TOPIC", ...]}, '
    'where WHO is all, {username, "NAME"}, {clientid, "ID"}, {ipaddr, "NETWORK"} and the like'
)
_KINDS_OF_CLIENTS: Final = frozenset(
    (
        *("username", "user", "clientid", "client", "client_attr"),
        *("ipaddr", "ipaddrs", "peerhost", "zone", "listener", "and", "or"),
    )
)


class _Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


_BOTH: Final = _Access.READ | _Access.WRITE
_ACTIONS: Final = {
    "subscribe": _Access.READ,
    "publish": _Access.WRITE,
    "all": _BOTH,
    "pubsub": _BOTH,
}
_WORDS: Final = {_Access.READ: "read", _Access.WRITE: "write", _BOTH: "readwrite"}


class _Right(Struct, frozen=True):
    """One topic of a rule.

    Args:
        setting: the rule, for messages.
        denies: whether it denies.
        user: whose it is; None: everybody's.
        is_vague: whether it is for some clients, or of some messages, that no rule here can tell apart.
        access: what it is about.
        topic: the filter, with EMQX's placeholders.
        is_eq: whether it is about the very filter.
        is_all: whether the rule names no topics: it is about those below $ as well.
    """

    setting: Setting
    denies: bool
    user: str | None
    is_vague: bool
    access: _Access
    topic: str
    is_eq: bool = False
    is_all: bool = False


def acl(texts: Iterable[tuple[str, str]], found: Imported) -> str:
    """Rules of EMQX in the syntax of vmq_acl, which allow what these allow, or less.

    Args:
        texts: the sources in their order, each an acl.conf with the name of its place.
        found: gets what is to be known.

    Raises:
        ImportProblem: one is no list of terms.
    """
    denials: list[_Right] = []
    #: What is granted: the right, what is left of its access, and its filter here.
    grants: list[tuple[_Right, _Access, str]] = []
    needed: dict[int, _Right] = {}
    rules = [(place, *each) for text, place in texts for each in _terms(text, place)]
    for place, line, rule in rules:
        for right in _rights(rule, Setting(f"{place}:{line}", _shown(rule), ""), found):
            if right.denies:
                denials.append(right)
            elif (granted := _granted(right, denials, found)) is not None:
                grants.append(granted)
                for each in _denied_parts(granted, denials):
                    needed[id(each)] = each
    lines: dict[str, None] = {}
    users: dict[str, dict[str, None]] = {}
    topics = [topic for _, _, topic in grants]
    for right in needed.values():
        user, written = _denial(right, topics, found)
        into = lines if user is None else users.setdefault(user, {})
        keyword = "pattern" if user is None else "topic"
        into.update(dict.fromkeys(f"{keyword} deny {each}" for each in written))
    for right, access, topic in grants:
        into = lines if right.user is None else users.setdefault(right.user, {})
        keyword = "pattern" if right.user is None else "topic"
        into[f"{keyword} {_WORDS[access]} {topic}"] = None
    whole = list(lines)
    for user, own in users.items():
        whole += ["", f"user {user}", *own]
    return "\n".join(whole) + "\n"


# Rules as EMQX has them


def _rights(rule: Any, setting: Setting, found: Imported) -> list[_Right]:
    """What a rule says, a topic each. One that cannot be read denies everything if it denies, and else says nothing."""
    try:
        return list(_read(rule, setting))
    except ValueError:
        found.wrong(setting, _ACCEPTED)
    if isinstance(rule, list) and rule[:1] == ["deny"]:
        return [_Right(setting, True, None, False, _BOTH, "#", is_all=True)]
    return []


def _read(rule: Any, setting: Setting) -> Iterator[_Right]:
    action: Any
    topics: list[Any] | None
    match rule:
        case [("allow" | "deny") as word, who]:
            action, topics = "all", None
        case [("allow" | "deny") as word, who, action, list() as topics]:
            pass
        case _:
            raise ValueError
    user, is_vague = _clients(who)
    qualifiers: list[Any] = []
    if isinstance(action, list) and action:
        action, *qualifiers = action
    if not isinstance(action, str) or action not in _ACTIONS:
        raise ValueError
    # `{publish, [{retain, false}]}`: of some messages alone.
    is_vague = is_vague or bool(qualifiers)
    access, denies = _ACTIONS[action], word == "deny"
    if topics is None:
        yield _Right(setting, denies, user, is_vague, access, "#", is_all=True)
        return
    for each in topics:
        match each:
            case str():
                yield _Right(setting, denies, user, is_vague, access, each)
            case ["eq", str(topic)]:
                # Without a wildcard, the very filter is the topic.
                is_eq = not {"+", "#"}.isdisjoint(topic.split("/"))
                yield _Right(setting, denies, user, is_vague, access, topic, is_eq)
            case _:
                raise ValueError


def _clients(who: Any) -> tuple[str | None, bool]:
    """The user of a rule, None: everybody; and whether it is for clients that no rule here can name."""
    match who:
        case "all":
            return None, False
        case [("username" | "user"), str(name)]:
            return (name, False) if _is_plain(name) else (None, True)
        case [str(kind), *_] if kind.strip("'") in _KINDS_OF_CLIENTS:
            return None, True
        case _:
            raise ValueError


def _is_plain(text: str) -> bool:
    """Whether a line of the file of rules can hold the text as it is; escapes of Erlang are not read."""
    return text.strip() == text != "" and text.isprintable() and "\\" not in text


# What one filter has to do with another


def _meets(one: str, other: str) -> bool:
    """Whether a topic may match both; a placeholder may stand for anything."""
    first, second = one.split("/"), other.split("/")
    for a, b in ((first[0], second[0]), (second[0], first[0])):
        if a in ("+", "#") and b.startswith("$") and not b.startswith("${"):
            return False
    for a, b in zip(first, second, strict=False):
        if "#" in (a, b) or _ANY_PLACEHOLDER.search(a) or _ANY_PLACEHOLDER.search(b):
            return True
        if a != b and "+" not in (a, b):
            return False
    shorter, longer = sorted((first, second), key=len)
    return len(shorter) == len(longer) or longer[len(shorter)] == "#"


def _covers(wide: str, narrow: str) -> bool:
    """Whether the first filter matches all that the second one does; a placeholder is a word."""
    first, second = wide.split("/"), narrow.split("/")
    if first[0] in ("+", "#") and second[0].startswith("$"):
        return False
    for place, level in enumerate(first):
        if level == "#":
            return True
        if place == len(second) or second[place] == "#":
            return False
        if level not in ("+", second[place]):
            return False
    return len(first) == len(second)


def _shares_clients(one: _Right, other: _Right) -> bool:
    return None in (one.user, other.user) or one.user == other.user


# What is granted


def _granted(
    right: _Right, denials: Iterable[_Right], found: Imported
) -> tuple[_Right, _Access, str] | None:
    """What a rule that allows grants here, behind the denials before it; None: nothing."""
    if right.is_vague:
        found.lost(
            right.setting, "rules are for user names, and for client ids by %c, whatever the QoS"
        )
        return None
    if right.is_eq:
        found.lost(right.setting, f"no rule is about the very filter {right.topic}")
        return None
    topic = _filled(right.topic, right.user)
    if topic is None:
        found.lost(right.setting, f"no rule can have the filter {right.topic}")
        return None
    access = right.access
    for each in denials:
        whole = each.is_all or (not each.is_eq and _covers(each.topic, right.topic))
        if whole and not each.is_vague and each.user in (None, right.user):
            access &= ~each.access
    if access != right.access:
        words = f"{_WORDS[access]} alone" if access else "nothing of it"
        found.differs(right.setting, f"{words} is granted: a rule before it denies the rest")
    return (right, access, topic) if access else None


def _filled(topic: str, user: str | None) -> str | None:
    """A filter as rules here have it, everybody's as a pattern; None: there is none such."""
    if not _is_plain(topic) or not _is_filter(topic):
        return None
    if user is None:
        if re.search("%[ucm]", topic):
            return None
        for theirs, ours in _PLACEHOLDERS.items():
            topic = topic.replace(theirs, ours)
    elif "${username}" in topic:
        if not {"/", "+", "#", "$", "%"}.isdisjoint(user):
            return None
        topic = topic.replace("${username}", user)
    return None if "${" in topic else topic


def _is_filter(topic: str) -> bool:
    *before, last = topic.split("/")
    words = [each for each in (*before, last) if each not in ("+", "#")]
    plain = all("+" not in each and "#" not in each for each in words)
    return plain and "#" not in before and topic.split("/", maxsplit=1)[0] != "$share"


# What is denied


def _denied_parts(
    granted: tuple[_Right, _Access, str], denials: Iterable[_Right]
) -> Iterator[_Right]:
    """The denials that take a part of what is granted."""
    right, access, _ = granted
    for each in denials:
        if not each.access & access or not _shares_clients(each, right):
            continue
        if each.is_eq and _is_filter(each.topic) and "${" not in each.topic:
            if _covers(right.topic, _witness(each.topic)):
                yield each
        elif each.is_all or _meets(each.topic, right.topic):
            yield each


def _witness(topic: str) -> str:
    """A topic that nobody uses and this filter matches: who may not read it, may not subscribe to the filter."""
    return "/".join(UNUSED if each in ("+", "#") else each for each in topic.split("/"))


def _denial(right: _Right, granted: Iterable[str], found: Imported) -> tuple[str | None, list[str]]:
    """Whose section a denial stands in (None: everybody's), and its filters."""
    less: list[str] = []
    user = right.user
    if right.is_vague:
        less.append("for everybody, and all of it")
        user = None
    topic = right.topic
    if user is not None and "${" in topic:
        filled = _filled(topic, user)
        if filled is None:
            less.append("for everybody")
            user = None
        else:
            topic = filled
    if right.is_eq and _is_filter(topic) and "${" not in topic:
        less.append(f"of all filters that match {_witness(topic)}")
        written = [_witness(topic)]
    elif right.is_all:
        below = {each.split("/")[0] for each in granted if each.startswith("$")}
        written = ["#", *(f"{each}/#" for each in sorted(below))]
    else:
        written = [_at_least(topic, is_pattern=user is None)]
        if "${" in written[0] or len(written[0].split("/")) < len(topic.split("/")):
            less.append(f"of all of {written[0]}")
    if right.access != _BOTH and not right.is_eq:
        less.append("reading and writing")
    what = "here it denies " + ", ".join(less) + ";" if less else "here"
    found.differs(
        right.setting,
        f"{what} it wins over every rule that allows, and a filter that matches more than it is refused as a whole",
    )
    return user, written


def _at_least(topic: str, *, is_pattern: bool) -> str:
    """A filter that matches all that a denied one does: from a level on that no rule can have, everything."""
    levels = topic.split("/")
    done: list[str] = []
    for place, level in enumerate(levels):
        here = level
        if is_pattern:
            if re.search("%[ucm]", level):
                return "/".join([*done, "#"])
            for theirs, ours in _PLACEHOLDERS.items():
                here = here.replace(theirs, ours)
        is_last = place == len(levels) - 1
        at_edge = (place == 0 and here != here.lstrip()) or (is_last and here != here.rstrip())
        is_wild = here in ("+", "#") and (here == "+" or is_last)
        is_word = "+" not in here and "#" not in here and "${" not in here and "\\" not in here
        is_share = place == 0 and here == "$share"
        if at_edge or is_share or not here.isprintable() or not (is_wild or is_word):
            return "/".join([*done, "#"])
        done.append(here)
    return "/".join(done) or "#"


# Erlang's terms


def _shown(rule: Any) -> str:
    if isinstance(rule, list):
        return "{" + ", ".join(_shown(each) for each in rule) + "}"
    return str(rule)


def _terms(text: str, place: str) -> Iterator[tuple[int, Any]]:
    """The terms of a file with their lines: tuples and lists as lists, atoms and strings as text."""
    stack: list[list[Any]] = [[]]
    line, begins = 1, 0
    for found in _TERM.finditer(text):
        token = found[0]
        here = text.count("\n", 0, found.start()) + 1
        line = begins = begins or here
        match token:
            case "{" | "[":
                stack.append([])
            case "}" | "]":
                if len(stack) < 2:
                    raise ImportProblem(f"{place}:{here}: a bracket too many")
                done = stack.pop()
                stack[-1].append(done)
            case ",":
                pass
            case "." if len(stack) == 1:
                yield from ((line, each) for each in stack[0])
                stack[0].clear()
                begins = 0
            case "." | '"':
                raise ImportProblem(f"{place}:{here}: {token} in the middle of a rule")
            case _ if token.startswith("%"):
                begins = begins if len(stack) > 1 or stack[0] else 0
            case _:
                stack[-1].append(token[1:-1] if token.startswith('"') else token)
    if len(stack) != 1 or stack[0]:
        raise ImportProblem(f"{place}:{line}: a rule does not end with a dot")
