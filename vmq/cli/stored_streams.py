"""The streams in a data folder, for commands that look at them where no broker answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmq.cli import settings
from vmq.cli.console import CliError
from vmq.cli.rows import clean


@contextmanager
def stored_streams(config: Path | None, data_dir: str | None) -> Iterator[Path]:
    """The folder of streams; what goes wrong with it becomes an error of the command line."""
    overrides = {} if data_dir is None else {"broker.data_dir": data_dir}
    folder = Path(settings.load(config, overrides).config.broker.data_dir)
    try:
        from vmq.streams.errors import StreamError
        from vmq.streams.stored import find_folder
    except ImportError as problem:
        raise CliError(
            f"streams need more libraries ({problem}): pip install 'vmq[streams]'"
        ) from None
    try:
        yield find_folder(folder)
    except (StreamError, OSError) as problem:
        raise CliError(clean(str(problem))) from None
