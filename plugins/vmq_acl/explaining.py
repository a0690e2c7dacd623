"""Which rule of the file decides, and which one is missing: for `vmq why`."""

from pathlib import Path

from vmq_hooks import Explanation, Question

from vmq_acl.acl import Acl, Verdict
from vmq_acl.names import Names, placeholders
from vmq_acl.rules import Access


def explanation(acl: Acl, path: Path, question: Question) -> Explanation:
    """Why the rules of a file answer a question as they do.

    Args:
        acl: the rules.
        path: the file.
        question: what was asked.
    """
    who = question.subscriber_id
    names = Names(question.username, who.client_id, who.mountpoint)
    access, topic = _wanted(question)
    verdict = acl.check(access, topic, names)
    rule = acl.rule_for(verdict, access, topic, names)
    if verdict is Verdict.NOT_GRANTED:
        return _missing(path, access, topic, names)
    if verdict is Verdict.GRANTED:
        found = (
            f"{path}, line {rule.line} grants it: {rule}"
            if rule
            else f"rules of {path} grant it together"
        )
        return Explanation(found)
    if rule is not None:
        reason = f"{path}, line {rule.line} denies it: {rule}"
        if rule.is_pattern and not all(map(names.fits_level, placeholders(rule.topic_filter))):
            reason += " (a name of this client cannot be put into it, so that it denies everything)"
        remedy = f"a change of that line: a denial wins over every grant ({path}, line {rule.line})"
        return Explanation(reason, remedy)
    return Explanation(f"{path} has more denials than are looked through for one question")


def _wanted(question: Question) -> tuple[Access, str]:
    if question.message is not None:
        return Access.WRITE, question.message.topic
    assert question.subscription is not None
    return Access.READ, question.subscription.topic_filter


def _missing(path: Path, access: Access, topic: str, names: Names) -> Explanation:
    word = "write" if access is Access.WRITE else "read"
    if topic.startswith("$share/") and access is Access.READ:
        topic = topic.split("/", 2)[-1]
    who = names.username
    subject = "a client without a user name" if who is None else who
    wild = {"+", "#"} & set(topic.split("/"))
    what = f"all that {topic} matches" if wild and access is Access.READ else topic
    reason = f"no rule of {path} lets {subject} {word} {what}"
    if names.are_wild:
        reason += " (its names have + or #, so that patterns grant it nothing)"
    place = "before the first user" if who is None else f"below `user {who}`"
    return Explanation(reason, f"`topic {word} {topic}` {place} would grant it")
