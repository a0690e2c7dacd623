"""Sections, patterns and denials together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmq_acl.acl import Acl, Verdict
from vmq_acl.names import Names
from vmq_acl.rules import Access, Rule, parse
from vmq_hooks import matches

BOB = Names("bob", "lamp")
ANONYMOUS = Names(None, "lamp")


def acl(text: str, *, general_for_all: bool = False) -> Acl:
    return Acl(parse(text.encode(), Path("acl")), general_for_all=general_for_all)


def reads(rules: Acl, topic_filter: str, names: Names = BOB) -> bool:
    return rules.check(Access.READ, topic_filter, names) is Verdict.GRANTED


def writes(rules: Acl, topic: str, names: Names = BOB) -> bool:
    return rules.check(Access.WRITE, topic, names) is Verdict.GRANTED


class TestSections:
    def test_or_for_everybody_as_in_vernemq(self) -> None:
        rules = acl("topic a\nuser bob\ntopic b", general_for_all=True)
        assert reads(rules, "a", BOB)
        assert reads(rules, "b", BOB)
        assert reads(rules, "a", ANONYMOUS)

    def test_patterns_are_for_everybody_wherever_they_stand(self) -> None:
        rules = acl("user bob\npattern read of/%c/#\npattern read to/%u")
        assert reads(rules, "of/lamp/x", ANONYMOUS)
        assert reads(rules, "to/eve", Names("eve", "x"))
        # Without a user name there is nothing to put in its place.
        assert not reads(rules, "to/", ANONYMOUS)
        assert not reads(rules, "to/None", ANONYMOUS)

    def test_a_mountpoint_is_a_name_too(self) -> None:
        rules = acl("pattern %m/data")
        assert reads(rules, "site/data", Names(None, "x", "site"))
        assert not reads(rules, "/data", Names(None, "x"))


class TestSubscriptions:
    def test_a_shared_subscription_is_judged_by_its_filter(self) -> None:
        rules = acl("user bob\ntopic read a")
        assert reads(rules, "$share/group/a")
        assert not reads(rules, "$share/group/b")
        assert not reads(rules, "$share/a/#")

    def test_to_publish_it_is_a_topic_like_any_other(self) -> None:
        rules = acl("user bob\ntopic a\ntopic #")
        assert rules.check(Access.WRITE, "a", BOB) is Verdict.GRANTED
        assert rules.check(Access.WRITE, "$share/group/a", BOB) is Verdict.NOT_GRANTED


class TestDenials:
    def test_a_filter_that_matches_one_denied_topic_is_denied(self) -> None:
        rules = acl("user bob\ntopic #\ntopic deny a/secret")
        for broad in ("#", "+/secret", "a/#", "a/+", "$share/g/#"):
            assert rules.check(Access.READ, broad, BOB) is Verdict.DENIED, broad
        assert reads(rules, "b/#")


class TestLongLists:
    def test_each_filter_gets_its_verdict(self) -> None:
        rules = acl("user bob\ntopic read a\ntopic deny b")
        found = rules.check_all(Access.READ, ["a", "b", "c"], BOB)
        assert found == [Verdict.GRANTED, Verdict.DENIED, Verdict.NOT_GRANTED]
        assert rules.check_all(Access.READ, [], BOB) == []

    def test_thousands_of_filters_do_not_each_search_thousands_of_denials(self) -> None:
        denials = "\n".join(f"topic deny dev/{index}/secret" for index in range(5000))
        rules = acl(f"user bob\ntopic read #\n{denials}")
        few = rules.check_all(Access.READ, ["dev/+/state"] * 10, BOB)
        many = rules.check_all(Access.READ, ["dev/+/state"] * 1000, BOB)
        assert set(few) == {Verdict.GRANTED}
        # 600,000 nodes in all, at 5002 a filter; the rest is refused without looking.
        assert many.count(Verdict.GRANTED) == 119

    def test_plain_filters_are_never_too_many(self) -> None:
        rules = acl("user bob\ntopic read #\ntopic deny a/b/c\ntopic deny +/x/c")
        filters = [f"a/{index}/+" for index in range(20_000)]
        assert set(rules.check_all(Access.READ, filters, BOB)) == {Verdict.GRANTED}


class TestDangerousNames:
    @pytest.mark.parametrize("name", ["+", "#", "a+", "x/#"])
    def test_patterns_are_closed_to_wildcards(self, name: str) -> None:
        rules = acl("topic open\nuser bob\ntopic mine\npattern read dev/%c/#\npattern read open")
        for names in (Names("bob", name), Names(name, "lamp")):
            assert not reads(rules, "dev/lamp/x", names)
            assert not reads(rules, f"dev/{name}/x", names)
            assert not reads(rules, "open", names)
        assert reads(rules, "mine", Names("bob", name))

    @pytest.mark.parametrize("name", ["lamp/secret", "$SYS", ""])
    def test_a_name_that_reaches_elsewhere_is_granted_nothing_by_it(self, name: str) -> None:
        rules = acl("pattern read %c/#\npattern read dev/%c/#\npattern read open")
        names = Names(None, name)
        assert not reads(rules, f"dev/{name}/x", names)
        assert not reads(rules, f"{name}/x", names)
        assert reads(rules, "open", names)

    @pytest.mark.parametrize("name", ["a/b", "+", "#", "$x"])
    def test_a_denial_that_cannot_be_spelled_out_denies_everything(self, name: str) -> None:
        rules = acl("topic #\nuser bob\ntopic #\npattern deny quarantine/%c/#")
        assert rules.check(Access.WRITE, "x", Names("bob", name)) is Verdict.DENIED
        assert rules.check(Access.WRITE, "x", Names(None, name)) is Verdict.DENIED
        assert rules.check(Access.WRITE, "x", Names("bob", "lamp")) is Verdict.GRANTED


# --- against a plain reading of the rules: mosquitto's, but that a denial wins over all sections

WORDS = ["a", "b", "%c", "%u", "lamp", "bob", "+"]
filters = st.builds(
    lambda words, many: "/".join([*words, "#"] if many else words),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.booleans(),
)
accesses = st.sampled_from([Access(0), Access.READ, Access.WRITE, Access.READ | Access.WRITE])
rule_lists = st.lists(
    st.builds(Rule, filters, accesses, st.sampled_from([None, "bob", "eve"]))
    | st.builds(Rule, filters, accesses, st.none(), st.just(True)),
    max_size=12,
)
topics = st.lists(st.sampled_from(["a", "b", "c", "lamp", "bob"]), min_size=1, max_size=4).map(
    "/".join
)
clients = st.builds(
    Names, st.sampled_from([None, "bob", "eve", "mallory"]), st.sampled_from(["lamp", "a"])
)


def naive(rules: list[Rule], access: Access, topic: str, names: Names) -> Verdict:
    granted = denied = False
    for rule in rules:
        topic_filter = rule.topic_filter
        if rule.is_pattern:
            if "%u" in topic_filter and names.username is None:
                continue
            topic_filter = topic_filter.replace("%c", names.client_id)
            topic_filter = topic_filter.replace("%u", names.username or "")
        elif rule.user != names.username:
            continue
        if matches(topic_filter, topic):
            denied |= rule.denies
            granted |= access in rule.access
    return Verdict.DENIED if denied else Verdict.GRANTED if granted else Verdict.NOT_GRANTED


@given(rule_lists, st.sampled_from([Access.READ, Access.WRITE]), topics, clients)
def test_as_a_plain_reading_has_it(
    rules: list[Rule], access: Access, topic: str, names: Names
) -> None:
    assert Acl(rules).check(access, topic, names) is naive(rules, access, topic, names)


@given(rule_lists, filters, clients, topics)
def test_a_granted_subscription_delivers_nothing_that_may_not_be_read(
    rules: list[Rule], wanted: str, names: Names, topic: str
) -> None:
    wanted = wanted.replace("%c", "c").replace("%u", "lamp")
    if reads(Acl(rules), wanted, names) and matches(wanted, topic):
        assert naive(rules, Access.READ, topic, names) is Verdict.GRANTED
