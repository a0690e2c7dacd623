"""The coverage-guided fuzzer of decoder and session: `python -m tests.fuzz.session [libFuzzer's options and folders]`.

It reads the sources, whether or not compiled modules stand beside them: only byte code can be
instrumented. An input that breaks a promise is written to a file (`-artifact_prefix`), which
`python -m tests.fuzz.session FILE` replays.
"""

import logging
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[2] / "vmq"


def prefer_sources() -> None:
    """From now on the modules of vmq are imported from their sources."""

    def only_sources(path: str) -> FileFinder:
        if not Path(path).is_relative_to(PACKAGE):
            raise ImportError(path)
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, only_sources)
    sys.path_importer_cache.clear()


def main(arguments: list[str]) -> None:
    """Fuzzes until libFuzzer's options say stop; ends the process."""
    import atheris

    prefer_sources()
    with atheris.instrument_imports(include=["vmq"]):
        import vmq.broker
        import vmq.protocol.session
    source = vmq.protocol.session.__file__
    assert source is not None
    assert source.endswith(".py"), source
    from tests.fuzz.target import run

    # What a peer did wrong is logged a thousand times a second here, and read by nobody.
    logging.getLogger("vmq").setLevel(logging.ERROR)
    logging.getLogger("vmq").propagate = False
    # The first word is what libFuzzer starts anew for -merge=1; a shell takes it apart.
    again = f"{sys.executable} -m tests.fuzz.session"
    atheris.Setup([again, *arguments], run, enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
