"""Where in a plugin's own code something happened, for its author."""

import traceback
from collections.abc import Iterable
from types import CodeType, CoroutineType, FrameType
from typing import Any


def is_within(file: str, source: str) -> bool:
    """Whether a file is that of a plugin, or in its folder."""
    return bool(source) and (file == source or file.startswith(source + "/"))


def said(error: BaseException) -> str:
    """An error in words: what its type adds is left out where the text speaks for itself."""
    text = str(error)
    if not text:
        return type(error).__name__
    return text if isinstance(error, OSError | ValueError) else f"{type(error).__name__}: {text}"


def where_raised(error: BaseException, source: str) -> str:
    """The last line of a plugin's own code that an error came through, as " (FILE:LINE in FUNCTION)"; "" if none did.

    Args:
        error: what was raised.
        source: the plugin's file, or the folder of its package.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    frames = ((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))
    return _last_own(frames, source)


def where_it_waits(awaitable: Any, source: str) -> str:
    """The line at which a coroutine of a plugin is at the moment, written as by `where_raised`."""
    frames: list[tuple[CodeType, int]] = []
    while isinstance(awaitable, CoroutineType):
        frame: FrameType | None = awaitable.cr_frame
        if frame is not None:
            frames.append((frame.f_code, frame.f_lineno))
        awaitable = awaitable.cr_await
    return _last_own(frames, source)


def _last_own(frames: Iterable[tuple[CodeType, int]], source: str) -> str:
    own = [
        f" ({code.co_filename}:{line} in {code.co_name})"
        for code, line in frames
        if is_within(code.co_filename, source)
    ]
    return own[-1] if own else ""
