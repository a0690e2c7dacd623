"""What the runner tells the driver: one line of JSON, since command lines show passwords to everybody."""

from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct


class Settings(Struct, kw_only=True, forbid_unknown_fields=True):
    """How a pipeline is to run."""

    name: str
    #: The file of the pipeline.
    source: str
    options: dict[str, str] = {}
    #: Options of pyspark_vmq for every reader and writer: server, username, ...
    connection: dict[str, str]
    master: str
    #: Spark's own settings.
    conf: dict[str, str] = {}
    #: The pipeline's folder, and where checkpoints and tables go (each a path, or a URL that Spark knows).
    folder: str
    checkpoint: str
    output: str
    #: Time between two batches, as Spark writes it.
    trigger: str
    #: Take what is there, and end.
    is_once: bool = False
    #: No query of it has run since the runner's start: what the broker refuses then is a mistake.
    is_new: bool = False


def local_path(place: str) -> Path | None:
    """The path of a place on this machine; None: it is elsewhere."""
    parts = urlsplit(place)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(parts.path if parts.scheme else place).absolute()
