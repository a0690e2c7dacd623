"""What a test counts on to be there."""

from typing import TypeVar

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value, which is not None."""
    assert value is not None
    return value
