"""The lines in which a configuration is refused."""

import pytest

from vmq.config.load import load
from vmq.config.options import ConfigError


def refused(**sources: object) -> list[str]:
    """The lines of the error that loading these sources ends in."""
    with pytest.raises(ConfigError) as caught:
        load(**sources)  # type: ignore[arg-type]
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.problems)
    return lines
