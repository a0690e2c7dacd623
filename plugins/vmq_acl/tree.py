"""A set of topic filters that answers two questions about another filter, without trying all of them.

`covers`: does every topic that the other filter matches match one of the set? Then a subscription to it
may be granted. `meets`: is there a topic that both match? Then a denial concerns it. A topic name is a
filter that matches itself alone, so both questions serve publishers as well.

The filters form a trie of levels. A question walks it level by level with the nodes that are reached so
far: it costs what lies along the other filter's way, not what the set holds.

Why `covers` is exact, although it enumerates no topics: take a filter without `#`, and in the place of each
`+` a word that the set does not mention. A filter of the set that matches this topic has wildcards in
those places, and so matches all that the other one does: walking `+` by way of wildcards finds it.
`p/#` is p, `p/+`, `p/+/+` and so on. Each is such a filter; where the set's filters end, only one that ends in `#`
still matches, and one such, once reached, matches everything longer as well.

Wildcards in the first level do not match topics that begin with `$` [MQTT-4.7.2-1].
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from vmq_acl.names import Names, fill, placeholders


class _Node:
    """The filters of the set that have their first levels in common."""

    __slots__ = ("children", "ends", "many", "plus", "templates")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.plus: _Node | None = None
        #: Levels that are made of a client's names, by their text: `sensor-%c`.
        self.templates: dict[str, tuple[frozenset[str], _Node]] = {}
        #: A filter ends with this level.
        self.ends = False
        #: A filter goes on with `#`, which matches this level's own topic, too.
        self.many = False

    def grow(self, level: str, is_pattern: bool) -> "_Node":
        """The node below for a level of a filter that is added."""
        if level == "+":
            if self.plus is None:
                self.plus = _Node()
            return self.plus
        names = placeholders(level) if is_pattern else frozenset()
        if names:
            return self.templates.setdefault(level, (names, _Node()))[1]
        return self.children.setdefault(level, _Node())

    def filled(self, names: Names) -> Iterable[tuple[str, "_Node"]]:
        """The levels made of names, for this client; without those that its names do not fit."""
        for level, (needed, node) in self.templates.items():
            if all(names.fits_level(each) for each in needed):
                yield fill(level, names), node

    def below(self, names: Names, depth: int) -> Iterator["_Node"]:
        """Every node of the next level that a wildcard leads to."""
        for level, node in chain(self.children.items(), self.filled(names)):
            # [MQTT-4.7.2-1]
            if depth > 0 or level[:1] != "$":
                yield node
        if self.plus is not None:
            yield self.plus

    def named(self, word: str, names: Names) -> Iterable["_Node"]:
        """The next nodes that a word leads to, other than by a wildcard."""
        if (node := self.children.get(word)) is not None:
            yield node
        if self.templates:
            for filled, node in self.filled(names):
                if filled == word:
                    yield node


class Effort:
    """How many more nodes may be visited: one client's long list of filters must not keep the others waiting."""

    def __init__(self, nodes: int) -> None:
        self.left = nodes


class FilterTree:
    """A set of topic filters; those added as patterns have `%u`, `%c` and `%m` for the client's names."""

    def __init__(self) -> None:
        self._root = _Node()
        self._is_empty = True

    def add(self, topic_filter: str, *, is_pattern: bool = False) -> None:
        """Adds a valid filter."""
        self._is_empty = False
        node = self._root
        levels = topic_filter.split("/")
        many = levels[-1] == "#"
        for level in levels[:-1] if many else levels:
            node = node.grow(level, is_pattern)
        if many:
            node.many = True
        else:
            node.ends = True

    def covers(self, topic_filter: str, names: Names) -> bool:
        """Whether every topic that the filter matches is matched by the set."""
        if self._is_empty:
            return False
        nodes: Sequence[_Node] = (self._root,)
        for depth, word in enumerate(topic_filter.split("/")):
            if word == "#":
                return _cover_all_below(nodes, depth)
            is_reserved = depth == 0 and word[:1] == "$"
            if not is_reserved and any(node.many for node in nodes):
                return True
            found = [node.plus for node in nodes if node.plus is not None and not is_reserved]
            if word != "+":
                for node in nodes:
                    found.extend(node.named(word, names))
            if not found:
                return False
            nodes = found
        return any(node.ends or node.many for node in nodes)

    def meets(self, topic_filter: str, names: Names, effort: Effort) -> bool:
        """Whether some topic is matched by the filter and by the set; or the effort is used up."""
        if self._is_empty:
            return False
        nodes: Sequence[_Node] = (self._root,)
        for depth, word in enumerate(topic_filter.split("/")):
            is_reserved = depth == 0 and word[:1] == "$"
            if not is_reserved and any(node.many for node in nodes):
                return True
            if word == "#":
                return any(_is_any_filter_below(node, depth, names) for node in nodes)
            found: list[_Node] = []
            for node in nodes:
                if word == "+":
                    found.extend(node.below(names, depth))
                else:
                    found.extend(node.named(word, names))
                    if node.plus is not None and not is_reserved:
                        found.append(node.plus)
            effort.left -= len(found)
            if effort.left < 0:
                return True
            if not found:
                return False
            nodes = found
        return any(node.ends or node.many for node in nodes)


def _cover_all_below(nodes: Sequence[_Node], depth: int) -> bool:
    """Whether the nodes match their own topics and all below; there is no topic of depth 0."""
    while nodes:
        if any(node.many for node in nodes):
            return True
        if depth > 0 and not any(node.ends for node in nodes):
            return False
        nodes = [node.plus for node in nodes if node.plus is not None]
        depth += 1
    return False


def _is_any_filter_below(node: _Node, depth: int, names: Names) -> bool:
    """Whether a filter ends in this node or below.

    Almost always the first way down finds one. No recursion: filters have up to 32,000 levels.
    """
    branches = [iter((node,))]
    while branches:
        below = next(branches[-1], None)
        if below is None:
            branches.pop()
            continue
        level = depth + len(branches) - 1
        if below.many or (below.ends and level > 0):
            return True
        branches.append(below.below(names, level))
    return False
