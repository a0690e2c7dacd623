"""The audit log, for commands that change files themselves: those of a broker that is stopped, or that it reads."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from vmq.cli.start.logs import audit_into
from vmq.cli.terminal.console import CliError
from vmq.config.options import Config
from vmq.runtime.audit import tell_of_operation, this_user

#: Where who asks is, as the admin socket and addresses are for a broker that runs.
OFFLINE: Final = "offline"
#: The same of a command that changes a file, whether a broker runs or not.
FILE: Final = "file"


@contextmanager
def audited(
    config: Config, name: str, parameters: Mapping[str, object], peer: str = OFFLINE
) -> Iterator[list[str]]:
    """Tells of a change once it is over, however it ended; what is put into the list is its result, else it is "ok".

    Only where the audit log has a file of its own: else it is part of the log of the broker, whose process this is not.

    Raises:
        CliError: the file cannot be written; then nothing is changed.
    """
    results: list[str] = []
    if config.log.audit_file is None:
        yield results
        return
    try:
        audit = audit_into(Path(config.log.audit_file))
    except OSError as problem:
        text = f"log.audit_file: cannot write {config.log.audit_file}: {problem.strerror}"
        raise CliError(text) from None
    result = "interrupted"
    try:
        yield results
        result = results[-1] if results else "ok"
    except Exception as error:
        result = f"failed: {error}"
        raise
    finally:
        tell_of_operation(name, parameters, this_user(), peer, result)
        logger = logging.getLogger("vmq.audit")
        logger.removeHandler(audit)
        logger.propagate = True
        audit.close()
