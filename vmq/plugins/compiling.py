"""From plugins in their order to call sites: done when plugins change, never when a message comes."""

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

from vmq_hooks.specs import CHAINS

from vmq.core.hook_sites import Hooks
from vmq.plugins.chains import NoticeChain, OnlyChain, RewriteChain, SubscribeChain, VerdictChain
from vmq.plugins.notices import NoticeQueues
from vmq.plugins.steps import AnswerStep, ChainStep, VerdictStep

_REWRITES: Final = ("on_unsubscribe", "on_deliver")
_REGISTER: Final = ("auth_on_register",)
_FUNCTIONS: Final = "expression_functions"
_AUTHORISE: Final = ("auth_on_publish", "auth_on_subscribe", "auth_on_unsubscribe")


class Member(Protocol):
    """What a chain needs of a loaded plugin."""

    name: str
    steps: dict[str, ChainStep]
    notices: NoticeQueues


M = TypeVar("M", bound=Member)
Wrap = Callable[[str, Any], Any]


class PluginSelection:
    """The plugins that decide for the clients of one listener; None: all, by priority."""

    def __init__(
        self, auth: Sequence[str] | None = None, authz: Sequence[str] | None = None
    ) -> None:
        self.auth = auth
        self.authz = authz
        self.hooks = Hooks()

    def names_for(self, hook: str) -> Sequence[str] | None:
        """The plugins chosen for a hook, in their order."""
        if hook in _REGISTER:
            return self.auth
        return self.authz if hook in _AUTHORISE else None


def notices(members: Sequence[Member], hook: str) -> NoticeChain | None:
    """The chain that tells everybody, or None if nobody listens."""
    steps = [(each.steps[hook], each.notices) for each in members if hook in each.steps]
    return NoticeChain(steps) if steps else None


def first(members: Sequence[Member], hook: str) -> OnlyChain | None:
    """The chain that asks the first plugin alone, or None if nobody serves the hook."""
    for each in members:
        step = each.steps.get(hook)
        if isinstance(step, AnswerStep):
            return OnlyChain(step)
    return None


def compile_into(
    selection: PluginSelection, members: Sequence[Member], clock: Callable[[], float], wrap: Wrap
) -> list[VerdictChain]:
    """Sets every site of a selection's hooks; returns the chains that keep verdicts."""
    chains: list[VerdictChain] = []
    for hook, kind in CHAINS.items():
        if not hasattr(selection.hooks, hook):
            continue  # the broker's own, no site of the core
        site: Any
        if kind == "all":
            site = notices(members, hook)
        elif hook in _REWRITES:
            site = _rewrites(members, hook)
        else:
            site = _verdicts(selection, members, hook, clock)
            if site is not None:
                chains.append(site)
        setattr(selection.hooks, hook, site if site is None else wrap(hook, site))
    selection.hooks.resolve()
    return chains


def _rewrites(members: Sequence[Member], hook: str) -> RewriteChain | None:
    steps = [each.steps[hook] for each in members if hook in each.steps]
    if not steps:
        return None
    return RewriteChain([each for each in steps if isinstance(each, AnswerStep)])


def deciding(names: Sequence[str] | None, members: Sequence[M], hook: str) -> list[M] | None:
    """Those who are asked for a verdict, in order; None: the hook is not called.

    Args:
        names: the plugins chosen for it; None: all.
        members: the plugins that run.
        hook: an auth hook.
    """
    if names is None:
        return [each for each in members if hook in each.steps] or None
    if not names:
        return None
    # Whoever was chosen and is not there cannot say yes: the chain stays, and refuses at its end.
    by_name = {each.name: each for each in members}
    return [by_name[each] for each in names if each in by_name and hook in by_name[each].steps]


def _verdicts(
    selection: PluginSelection, members: Sequence[Member], hook: str, clock: Callable[[], float]
) -> VerdictChain | None:
    chosen = deciding(selection.names_for(hook), members, hook)
    if chosen is None:
        return None
    steps = [each.steps[hook] for each in chosen]
    kind = SubscribeChain if hook == "auth_on_subscribe" else VerdictChain
    return kind(hook, [each for each in steps if isinstance(each, VerdictStep)], clock)


def functions_of(members: Iterable[Member]) -> dict[str, Callable[..., Any]]:
    """All of them by their names; of two plugins that have one of the same name the first counts."""
    found: dict[str, Callable[..., Any]] = {}
    for member in members:
        step = member.steps.get(_FUNCTIONS)
        if isinstance(step, AnswerStep):
            for name, function in (step.ask(()) or {}).items():
                found.setdefault(name, _observed(step, function))
    return found


def _observed(step: AnswerStep, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is timed, and whose failures are counted.

    They open no breaker: what a function is given is what some client sent, who is not to have the plugin's other hooks
    answer nobody by that.
    """

    def call(*arguments: Any) -> Any:
        began = perf_counter()
        try:
            return function(*arguments)
        except BaseException as error:
            step.guard.errors[_FUNCTIONS] += 1
            if isinstance(error, Exception):
                raise
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        finally:
            step.observe(perf_counter() - began)

    return call
