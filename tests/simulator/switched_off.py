"""Rules without which a promise breaks, switched off: other methods in the place of those that keep them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest


@contextmanager
def switched_off(parts: Iterable[tuple[Any, str, Any]], keepers: Iterable[Any]) -> Iterator[None]:
    """Puts other attributes in the place of some, each by its owner and name.

    No method of a compiled class can be replaced: where one of the `keepers` is compiled, the test is skipped, and the
    interpreted run, which has the same sources, asks it (`tests.support.interpreted`).
    """
    if any(hasattr(each, "__mypyc_attrs__") for each in keepers):
        pytest.skip("make test-pure has this: no method of a compiled class can be replaced")
    with ExitStack() as stack:
        for owner, name, other in parts:
            stack.enter_context(patch.object(owner, name, other))
        yield
