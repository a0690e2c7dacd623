"""Rules put in order: who may read and write what."""

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from vmq_acl.names import Names, placeholders
from vmq_acl.rules import Access, Rule
from vmq_acl.tree import Effort, FilterTree

#: Nodes that may be visited to look for denials, about 0.4 µs each: for a question, and more for each filter in it.
_EFFORT: Final = 500_000
_EFFORT_EACH: Final = 100


class Verdict(enum.Enum):
    """What the rules say. What no rule mentions is not granted."""

    GRANTED = "granted"
    DENIED = "denied"
    NOT_GRANTED = "not granted"


class _Section:
    """The rules that concern the same clients."""

    def __init__(self) -> None:
        self.grants = {Access.READ: FilterTree(), Access.WRITE: FilterTree()}
        self.denials = FilterTree()
        #: The placeholders in denials.
        self.denies_by: frozenset[str] = frozenset()

    def add(self, rule: Rule) -> None:
        if rule.denies:
            self.denials.add(rule.topic_filter, is_pattern=rule.is_pattern)
            if rule.is_pattern:
                self.denies_by |= placeholders(rule.topic_filter)
            return
        for access, tree in self.grants.items():
            if access in rule.access:
                tree.add(rule.topic_filter, is_pattern=rule.is_pattern)


class Acl:
    """The rules of one file.

    Args:
        rules: as they stand in the file.
        general_for_all: the general section is everybody's, as in VerneMQ; else it is that of clients
            without a user name, as in mosquitto.
    """

    def __init__(self, rules: Iterable[Rule], *, general_for_all: bool = False) -> None:
        self._general = _Section()
        self._users: dict[str, _Section] = {}
        self._patterns = _Section()
        self._general_for_all = general_for_all
        self._rules = tuple(rules)
        for rule in self._rules:
            self._section(rule).add(rule)

    def _section(self, rule: Rule) -> _Section:
        if rule.is_pattern:
            return self._patterns
        if rule.user is None:
            return self._general
        return self._users.setdefault(rule.user, _Section())

    def check_all(
        self, access: Access, topic_filters: Sequence[str], names: Names
    ) -> list[Verdict]:
        """What `check` says to each of them.

        What a long list of filters with wildcards costs is limited, by their number and not by that of the
        denials; what could not be looked at for this is denied.
        """
        effort = Effort(_EFFORT + _EFFORT_EACH * len(topic_filters))
        return [self._check(access, each, names, effort) for each in topic_filters]

    def check(self, access: Access, topic_filter: str, names: Names) -> Verdict:
        """May this client read from, or write to, all that the filter matches?

        A denial wins over every grant, wherever both stand. A filter that matches one topic that is
        denied is denied as a whole: nobody looks at the single message later.
        """
        return self._check(access, topic_filter, names, Effort(_EFFORT))

    def _check(self, access: Access, topic_filter: str, names: Names, effort: Effort) -> Verdict:
        if access is Access.READ:
            topic_filter = _without_share(topic_filter)
        for section in self._concerning(names):
            if section.denials.meets(topic_filter, names, effort):
                return Verdict.DENIED
        if any(_is_unusable(names, each) for each in self._patterns.denies_by):
            return Verdict.DENIED
        for section in self._concerning(names):
            # As in mosquitto, patterns are closed to names that might be filters themselves.
            if section is self._patterns and names.are_wild:
                continue
            if section.grants[access].covers(topic_filter, names):
                return Verdict.GRANTED
        return Verdict.NOT_GRANTED

    def rule_for(
        self, verdict: Verdict, access: Access, topic_filter: str, names: Names
    ) -> Rule | None:
        """The first rule that alone gives this verdict; None: several together do, or none.

        It tries rule after rule, so it takes long where there are many; `check` does not.
        """
        for rule in self._rules:
            if rule.denies == (verdict is Verdict.DENIED) and self._concerns(rule, names):
                alone = Acl([rule], general_for_all=self._general_for_all)
                if alone.check(access, topic_filter, names) is verdict:
                    return rule
        return None

    def _concerns(self, rule: Rule, names: Names) -> bool:
        return self._section(rule) in tuple(self._concerning(names))

    def _concerning(self, names: Names) -> Iterator[_Section]:
        if names.username is None or self._general_for_all:
            yield self._general
        if names.username is not None and (section := self._users.get(names.username)) is not None:
            yield section
        yield self._patterns


def _is_unusable(names: Names, placeholder: str) -> bool:
    """Whether a client has such a name, but one that cannot be put into a filter.

    A denial that cannot be spelled out for a client might concern any topic.
    """
    if names.value(placeholder) is None or (placeholder == "%m" and not names.mountpoint):
        return False
    return not names.fits_level(placeholder)


def _without_share(topic_filter: str) -> str:
    """What a shared subscription, `$share/GROUP/FILTER`, subscribes to."""
    if topic_filter.startswith("$share/"):
        return topic_filter.split("/", 2)[-1]
    return topic_filter
