"""EMQX's rules as rules of vmq_acl: never more than EMQX allows, which takes the first rule that fits."""

import random
from pathlib import Path

import pytest
from vmq_acl.acl import Acl, Verdict
from vmq_acl.names import Names
from vmq_acl.rules import Access, parse

from vmq.cli.importing.emqx_acl import SHIPPED, acl
from vmq.cli.importing.rules import Imported, ImportProblem


def made(text: str) -> tuple[list[str], Imported]:
    found = Imported()
    return acl([(text, "acl.conf")], found).splitlines(), found


def told(found: Imported) -> str:
    return "\n".join(map(str, found.notes))


def test_a_denial_of_every_subscription_is_kept() -> None:
    lines, found = made('{deny, all, subscribe, ["#"]}.\n{allow, all}.\n')
    assert lines == ["pattern write #"]
    assert "acl.conf:2: {allow, all}: write alone is granted" in told(found)


def test_what_stands_behind_a_denial_of_everything_is_not_granted() -> None:
    lines, found = made('{deny, all}.\n{allow, all, all, ["a/#"]}.\n{allow, all}.\n')
    assert lines == [""]
    assert "acl.conf:2: {allow, all, all, {a/#}}: nothing of it is granted" in told(found)


def test_a_denial_for_a_user_before_a_rule_for_everybody_is_that_user_s() -> None:
    lines, found = made('{deny, {username,"eve"}, publish, ["cmd/#"]}.\n{allow, all}.\n')
    assert lines == ["pattern readwrite #", "", "user eve", "topic deny cmd/#"]
    assert "it denies reading and writing" in told(found)


def test_a_denial_for_clients_that_no_rule_can_name_is_for_everybody() -> None:
    for who in ('{clientid, "c1"}', '{ipaddr, "10.0.0.0/8"}', '{username, {re, "^e"}}'):
        lines, _ = made(f'{{deny, {who}, all, ["cmd/#"]}}.\n{{allow, all}}.\n')
        assert lines == ["pattern deny cmd/#", "pattern readwrite #"]


def test_a_rule_that_allows_for_such_clients_or_such_messages_is_left_out() -> None:
    lines, found = made(
        '{allow, {ipaddr, "127.0.0.1"}, all, ["#"]}.\n'
        '{allow, all, {publish, [{retain, false}]}, ["a"]}.\n'
        '{allow, all, subscribe, [{eq, "#"}]}.\n'
        '{allow, all, publish, ["x/${client_attrs.alias}", "x/%c"]}.\n'
    )
    assert lines == [""]
    assert [note.is_lost for note in found.notes] == [True] * 5


def test_the_rules_that_come_with_emqx_keep_everybody_from_subscribing_to_everything() -> None:
    lines, _ = made(SHIPPED)
    rules = Acl(parse("\n".join(lines).encode(), Path("acl")))
    names = Names("alice", "c1")
    for topic in ("#", "+/#", "$SYS/#"):
        assert rules.check(Access.READ, topic, names) is not Verdict.GRANTED
    for topic in ("home/#", "a", "a/b"):
        assert rules.check(Access.READ, topic, names) is Verdict.GRANTED
        assert rules.check(Access.WRITE, topic.replace("#", "x"), names) is Verdict.GRANTED


def test_a_denied_placeholder_that_no_rule_has_denies_everything_below() -> None:
    lines, _ = made('{deny, all, all, ["x/${zone}/y"]}.\n{allow, all}.\n')
    assert lines == ["pattern deny x/#", "pattern readwrite #"]


@pytest.mark.parametrize("rule", ["{allow}.", "foo.", "{allow, all, eat}.", "{deny, 1, all, [x]}."])
def test_a_rule_that_is_none_is_told_with_its_line(rule: str) -> None:
    lines, found = made(f'{{allow, all, all, ["a"]}}.\n{rule}\n')
    assert lines[0] == "pattern readwrite a"
    (note,) = found.notes
    assert note.is_wrong
    assert note.place == "acl.conf:2"
    assert "accepted: {allow or deny, WHO}" in note.what


def test_behind_a_denial_that_cannot_be_read_nothing_is_granted() -> None:
    lines, _ = made("{deny, some, all, [x]}.\n{allow, all}.\n")
    assert lines == [""]


def test_names_and_topics_put_no_lines_into_the_file() -> None:
    lines, _ = made(
        '{allow, {username,"a\nuser b"}, all, ["x\ntopic #"]}.\n{allow, all, all, [" y"]}.'
    )
    assert lines == [""]


_TOPICS = ("a", "b", "a/b", "b/a", "a/c1", "$SYS/x")
_FILTERS = (*_TOPICS, "#", "+", "a/#", "+/b", "a/+", "$SYS/#", "a/${clientid}", "${username}/b")
_WHOS = ("all", '{username, "a"}', '{username, "b"}', '{clientid, "c1"}', '{username, {re, "a"}}')


def _emqx_allows(
    rules: list[tuple[str, str, str, str]], client: tuple[str, str], action: str, topic: str
) -> bool:
    """EMQX's own way: the first rule that fits; a filter is compared as if it were a topic."""
    user, client_id = client
    for word, who, about, stated in rules:
        fits = {
            "all": True,
            '{username, "a"}': user == "a",
            '{username, "b"}': user == "b",
            '{clientid, "c1"}': client_id == "c1",
            '{username, {re, "a"}}': "a" in user,
        }[who]
        if not fits or about not in (action, "all"):
            continue
        if stated.startswith("{eq"):
            matches = stated == f'{{eq, "{topic}"}}'
        else:
            plain = stated.strip('"').replace("${clientid}", client_id).replace("${username}", user)
            matches = _matches(topic.split("/"), plain.split("/"))
        if matches:
            return word == "allow"
    return False


def _matches(topic: list[str], wanted: list[str]) -> bool:
    if topic[0].startswith("$") and wanted[0] in ("+", "#"):
        return False
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place == len(topic) or level not in ("+", topic[place]):
            return False
    return len(topic) == len(wanted)


def test_what_is_written_never_allows_what_emqx_does_not() -> None:
    chosen = random.Random(1)
    for _ in range(200):
        check(chosen)


def check(chosen: random.Random) -> None:
    """Some rules, asked of both."""
    topics = [*(f'"{each}"' for each in _FILTERS), '{eq, "#"}', '{eq, "a/#"}', '{eq, "+/b"}']
    rules = [
        (
            chosen.choice(("allow", "deny")),
            chosen.choice(_WHOS),
            chosen.choice(("publish", "subscribe", "all")),
            chosen.choice(topics),
        )
        for _ in range(chosen.randint(1, 6))
    ]
    text = "\n".join(f"{{{w}, {who}, {about}, [{topic}]}}." for w, who, about, topic in rules)
    lines, _ = made(text)
    written = Acl(parse("\n".join(lines).encode(), Path("acl")))
    for client in (("a", "c1"), ("b", "c2"), ("b", "c1")):
        names = Names(*client)
        for topic in _TOPICS:
            if written.check(Access.WRITE, topic, names) is Verdict.GRANTED:
                assert _emqx_allows(rules, client, "publish", topic), (text, lines, topic)
        for topic in (*_TOPICS, "#", "+", "a/#", "+/b", "a/+", "+/#", "+/+", "$SYS/#"):
            if written.check(Access.READ, topic, names) is Verdict.GRANTED:
                # What rules that add up make of parts, EMQX refuses as one filter but grants in its parts.
                parts = [each for each in _TOPICS if _matches(each.split("/"), topic.split("/"))]
                asked = [topic] if _one_rule(lines, topic, names) else parts
                for each in asked:
                    assert _emqx_allows(rules, client, "subscribe", each), (text, lines, each)


def _one_rule(lines: list[str], topic: str, names: Names) -> bool:
    written = Acl(parse("\n".join(lines).encode(), Path("acl")))
    return written.rule_for(Verdict.GRANTED, Access.READ, topic, names) is not None


def test_a_file_that_is_no_list_of_terms_says_where() -> None:
    with pytest.raises(ImportProblem, match=r"acl\.conf:2: "):
        made('{allow, all}.\n{allow, "x}.\n')
