"""Pipelines by name or file: those in the box, and the user's own in Python or SQL."""

import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from msgspec import Struct

from vmq_spark.errors import PipelineError
from vmq_spark.options import Option, options_of
from vmq_spark.sql import SqlPipeline
from vmq_spark.status import is_name

BOX: Final = Path(__file__).with_name("pipelines")
#: Bytes of a file of SQL.
LARGEST_FILE: Final = 1 << 20


class Pipeline(Struct):
    """A pipeline that was loaded: what it says of itself, and how to build it."""

    description: str
    options: dict[str, Option]
    build: Callable[..., object]
    #: Set for a user's own module: executors do not have it, so its functions travel with their code.
    module: ModuleType | None = None


def in_the_box() -> dict[str, Path]:
    """The pipelines that come with vmq."""
    found = sorted(each for each in BOX.iterdir() if each.suffix in {".py", ".sql"})
    return {each.stem: each for each in found if is_name(each.stem)}


def find(text: str) -> Path:
    """The file of the pipeline that a user names.

    Raises:
        PipelineError: there is none.
    """
    if not text.endswith((".py", ".sql")):
        box = in_the_box()
        if text in box:
            return box[text]
        raise PipelineError(
            f"there is no pipeline {text!r}; there are: {', '.join(box)}, and files of your own "
            "(FILE.py, FILE.sql)"
        )
    path = Path(text)
    if not path.is_file():
        raise PipelineError(f"there is no file {text!r}")
    return path.resolve()


def load(path: Path) -> Pipeline:
    """Reads a pipeline, running the module that it is.

    Raises:
        PipelineError: it cannot be read, or is none.
    """
    try:
        return _load_sql(path) if path.suffix == ".sql" else _load_module(path)
    except PipelineError as problem:
        raise PipelineError(f"{path}: {problem}") from None
    except (OSError, UnicodeError) as problem:
        raise PipelineError(f"{path}: {problem}") from None


def _load_sql(path: Path) -> Pipeline:
    if path.stat().st_size > LARGEST_FILE:
        raise PipelineError(f"has more than {LARGEST_FILE} bytes")
    found = SqlPipeline.parse(path.read_text("utf-8-sig"))
    return Pipeline(found.description, found.options, found.build)


def _load_module(path: Path) -> Pipeline:
    name = f"vmq_pipeline_{path.stem.replace('-', '_')}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a path that ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # As for a script: what lies beside it can be imported.
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as problem:  # whatever a user's module raises
        raise PipelineError(f"cannot be imported: {_line(problem)}") from problem
    function: Any = getattr(module, "pipeline", None)
    if not callable(function):
        raise PipelineError("there is no function 'pipeline' in it: def pipeline(flow, *, ...)")
    own = module if path.parent != BOX else None
    return Pipeline(inspect.getdoc(module) or "", options_of(function), function, own)


def _line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"
