"""The corpus in the repository: what to begin with, and what the suite replays.

`python -m tests.fuzz.corpus FOLDER` writes it anew from its seeds, conversations that clients really have, and from
inputs that a fuzzer left in a folder: of those the smallest that show something new, a step from one line of the core
to another that no smaller input takes.
"""

import hashlib
import logging
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tests.fuzz.session import PACKAGE, prefer_sources

CORPUS: Final = Path(__file__).parent / "corpus"

# It is read in each run of the suite, and in each clone.
MAX_FILES: Final = 200
MAX_BYTES: Final = 200 * 1024

#: A step in the code: file and line that were left, and the line that was gone to.
Step = tuple[str, int, int]


class Steps:
    """Collects the steps that the core takes in one call."""

    def __init__(self) -> None:
        self.taken: set[Step] = set()

    def of(self, data: bytes) -> set[Step]:
        """The steps of one input."""
        from tests.fuzz.target import run

        self.taken = set()
        sys.settrace(self._enter)
        try:
            run(data)
        finally:
            sys.settrace(None)
        return self.taken

    def _enter(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(str(PACKAGE)):
            return None
        last = -frame.f_code.co_firstlineno

        def trace(frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal last
            if event == "line":
                self.taken.add((name, last, frame.f_lineno))
                last = frame.f_lineno
            return trace

        return trace


def chosen(seeds: dict[str, bytes], found: list[bytes]) -> dict[str, bytes]:
    """The seeds, and by name what shows something that nothing smaller does."""
    steps = Steps()
    files = dict(seeds)
    size = sum(map(len, files.values()))
    seen: set[Step] = set()
    for data in files.values():
        seen |= steps.of(data)
    for data in sorted(found, key=len):
        fresh = steps.of(data) - seen
        if fresh and len(files) < MAX_FILES and size + len(data) <= MAX_BYTES:
            seen |= fresh
            size += len(data)
            files["found-" + hashlib.sha256(data).hexdigest()[:16]] = data
    print(f"corpus: {len(files)} inputs, {size} bytes, {len(seen)} steps in the core")
    return files


def main(folders: list[str]) -> None:
    prefer_sources()
    logging.getLogger("vmq").setLevel(logging.ERROR)
    present = [
        *CORPUS.glob("found-*"),
        *(each for name in folders for each in Path(name).iterdir()),
    ]
    seeds = {each.name: each.read_bytes() for each in sorted(CORPUS.glob("seed-*"))}
    files = chosen(seeds, [each.read_bytes() for each in present if each.is_file()])
    for each in CORPUS.iterdir():
        each.unlink()
    for name, data in files.items():
        (CORPUS / name).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
