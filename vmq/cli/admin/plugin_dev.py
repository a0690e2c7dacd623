"""`vmq plugin dev`: a throw-away broker around one plugin, which takes up its code at each save and shows verdicts."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from vmq_hooks import Message, SubscriberId, Subscription

from vmq.broker import Broker
from vmq.cli.start.foreground import leave_nothing, on_signal
from vmq.cli.terminal.console import error
from vmq.config.embedding import CALL
from vmq.core.hook_sites import Pending
from vmq.plugins.loading import Stamp, stamp_of
from vmq.plugins.starting import PluginError
from vmq.tracing.tracer import verdict_of

#: Seconds between looks at the plugin's files.
LOOK: Final = 0.25
#: Bytes of a payload that are shown.
SHOWN: Final = 64


class Workbench:
    """A broker with one plugin, and an eye on its files.

    Args:
        path: the plugin's file, or the folder of its package.
        name: of its section.
        options: its own options.
        listen: URLs of listeners, all on this machine.
    """

    def __init__(
        self, path: Path, name: str, options: Mapping[str, object], listen: list[str]
    ) -> None:
        self.path = path
        self.name = name
        self._stop = asyncio.Event()
        # Not enabled: a broker would not start with code that does not, and here it is to be mended meanwhile.
        section = {**options, "path": str(path.absolute()), "enabled": False}
        self.broker = Broker(listen=listen, data_dir=None, plugins={name: section})

    async def run(self) -> int:
        """Runs until a signal comes."""
        on_signal(self._stop.set)
        async with self.broker:
            self.broker.plugins.watch(self._shown)
            print(f"vmq ready: {' '.join(self.broker.addresses)}", flush=True)
            await self._follow()
        await leave_nothing()
        return 0

    async def _follow(self) -> None:
        seen: Stamp = ()
        while not self._stop.is_set():
            stamp = stamp_of(self.path)
            if stamp != seen:
                seen = stamp
                await self._take_up()
            try:
                async with asyncio.timeout(LOOK):
                    await self._stop.wait()
            except TimeoutError:
                continue

    async def _take_up(self) -> None:
        """Has the code as it is now serve; what is wrong with it is told, and what served before goes on."""
        plugins = self.broker.plugins
        runs = self.name in plugins.loaded
        try:
            if runs:
                await plugins.reload(self.name, force=True)
            else:
                await plugins.enable(self.name)
        except PluginError as problem:
            error(str(problem).replace(f"{CALL}: ", ""))  # the options are those of the command
            print("the code of before goes on" if runs else "waiting for a change", flush=True)
            return
        hooks = " ".join(plugins.loaded[self.name].steps) or "no hooks"
        print(f"{'reloaded' if runs else 'loaded'} {self.name}: {hooks}", flush=True)

    def _shown(self, hook: str, site: Callable[..., Any]) -> Callable[..., Any]:
        """A call site that tells of each call."""

        def call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            answer = site(*arguments)
            if not isinstance(answer, Pending):
                _say(hook, arguments, answer, begin)
                return answer
            outer = Pending(answer.cancel)
            outer.charge = answer.charge

            def arrived(found: Any) -> None:
                _say(hook, arguments, found, begin)
                outer.finish(found)

            answer.then = arrived
            return outer

        return call


def _say(hook: str, arguments: tuple[Any, ...], answer: Any, begin: float) -> None:
    took = (time.perf_counter() - begin) * 1000
    print(f"{hook} {_asked(hook, arguments)}: {verdict_of(hook, answer)} {took:.2f} ms", flush=True)


def _asked(hook: str, arguments: tuple[Any, ...]) -> str:
    """What a call was about; no passwords."""
    words: list[str] = []
    for each in arguments:
        match each:
            case SubscriberId():
                words.append(str(each))
            case Message():
                payload = each.payload[:SHOWN]
                cut = "..." if len(each.payload) > SHOWN else ""
                words.append(f"{each.topic} qos={each.qos} {payload!r}{cut}")
            case list() | tuple():
                words += [
                    f"{one.topic_filter} qos={one.qos}"
                    if isinstance(one, Subscription)
                    else str(one)
                    for one in each
                ]
            case str() if hook != "auth_on_register" or each == arguments[2]:
                words.append(f"user={each}")
    return " ".join(words)
