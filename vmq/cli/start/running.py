"""What can be done to a broker while `vmq start` runs it: reload, log rotation, signs of life."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from vmq.cli.start.foreground import say_ready
from vmq.cli.start.logs import BrokerLog
from vmq.cli.start.service import Notifier
from vmq.cli.terminal.console import CliError
from vmq.runtime.audit import tell_of_reload
from vmq_cluster.ticks import sleep_to_tick

if TYPE_CHECKING:
    from vmq.config.options import Config
    from vmq.config.overrides import LiveConfig

logger = logging.getLogger("vmq.cli")

#: Seconds between two rounds of housekeeping, at most.
STEP: Final = 1.0


class Managed(Protocol):
    """What `vmq start` runs."""

    live: "LiveConfig"
    on_change: "Callable[[list[str]], None] | None"

    @property
    def config(self) -> "Config":
        """The configuration in force."""

    @property
    def addresses(self) -> list[str]:
        """The URLs of the open listeners with their real ports."""

    def reload(self, config: "Config") -> list[str]:
        """As `vmq.broker.Broker` has it."""

    async def followed(self) -> list[str]:
        """As `vmq.config.configured.Configured` has it."""


class Running:
    """A broker in the foreground, and what surrounds it.

    Args:
        broker: the broker, or the supervisor of those who are one; it need not be started yet.
        log: its log.
        notifier: the service manager's.
        load: reads the configuration anew, and raises CliError with what is wrong with it.
        shut: why no clients are served; "": they are.
    """

    def __init__(
        self,
        broker: Managed,
        log: BrokerLog,
        notifier: Notifier,
        load: Callable[[], "Config"],
        shut: Callable[[], str] = str,
    ) -> None:
        self._broker = broker
        self._log = log
        self._notifier = notifier
        self._load = load
        self._why_shut = shut
        self._shut = ""
        self._settling: asyncio.Task[None] | None = None
        self._is_ready = False
        #: A reload was asked for before the start was done: what has been read by then may be older.
        self._is_asked = False
        broker.on_change = self._on_change

    def ready(self) -> None:
        """The broker has started."""
        self._is_ready = True
        self._shut = self._why_shut()
        self._tell_manager()
        if self._is_asked:
            self.reload()

    def stopping(self) -> None:
        """The broker is about to stop."""
        self._is_ready = False
        self._notifier.stopping()

    def reload(self) -> None:
        """Take over the configuration as it is now, or say why not and change nothing; a start is waited for."""
        if not self._is_ready:
            self._is_asked = True
            return
        self._notifier.reloading()
        try:
            changed = self._take_over(self._load())
        except CliError as refused:
            for line in str(refused).splitlines():
                logger.error('reload refused reason="%s"', line)
                tell_of_reload("nothing", f"refused: {line}")
            self._tell_manager()
            return
        self._settling = asyncio.create_task(self._settle(changed))

    async def _settle(self, changed: list[str]) -> None:
        """Tell of it when all follow it, or stay as they were."""
        self._reloaded(changed, await self._broker.followed())

    def _reloaded(self, changed: list[str], problems: list[str]) -> None:
        set_live = ", ".join(self._broker.live.overrides)
        kept = f' set_live="{set_live}"' if set_live else ""
        names = ", ".join(changed) or "nothing"
        if problems:
            why = "; ".join(problems)
            logger.error('reloaded in part changed="%s"%s not_followed="%s"', names, kept, why)
            tell_of_reload(names, "in part, these stay as they were: " + why)
        else:
            logger.info('reloaded changed="%s"%s', names, kept)
            tell_of_reload(names, "ok")
        self._tell_manager()

    def _tell_manager(self) -> None:
        """Tell it that the broker does its work, and where, or that it serves nobody."""
        where = " ".join(self._broker.addresses)
        self._notifier.ready(f"serves nobody: {where} ({self._shut})" if self._shut else where)

    def _look_at_door(self) -> None:
        """Tell whoever started the broker, and the manager, once it serves clients, or serves nobody any more."""
        shut = self._why_shut()
        if shut != self._shut:
            self._shut = shut
            say_ready(self._broker.addresses, shut)
            self._tell_manager()

    def _take_over(self, config: "Config") -> list[str]:
        from vmq.config.options import ConfigError
        from vmq.config.reload import ReloadError

        try:
            return self._broker.reload(config)
        except (ReloadError, ConfigError, OSError) as error:
            raise CliError(str(error)) from None

    def _on_change(self, _changed: list[str]) -> None:
        """The log goes by the broker's configuration."""
        options = self._broker.config.log
        self._log.set_level(options.level)
        self._log.set_format(options.format)
        self._log.set_flood_limit(options.flood_limit)

    def rotate(self) -> None:
        """Open the log file anew, which something else has moved away."""
        try:
            self._log.reopen()
        except OSError as error:
            logger.warning("the log goes on in its old file: %s", error)
        else:
            logger.info("log opened anew")

    async def keep_house(self) -> None:
        """Until cancelled: tell that the loop runs, and whether clients are served; sum up floods in the log."""
        watchdog = self._notifier.watchdog_seconds
        step = STEP if watchdog is None else min(STEP, watchdog / 3)
        while True:
            self._notifier.alive()
            self._log.sum_up()
            self._look_at_door()
            await sleep_to_tick(step)

    def finish(self) -> None:
        """The last words."""
        self._log.sum_up(everything=True)
