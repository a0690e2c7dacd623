"""The options of job queues."""

from pathlib import Path

import msgspec
import pytest

from vmq.config.checks import check
from vmq.config.jobs import JobOptions, options_of
from vmq.config.load import load
from vmq.config.options import Config, ConfigError


def test_the_most_specific_pattern_that_says_something_holds() -> None:
    patterns = {
        "mail-*": JobOptions(retry=[5, 30], ttl=60),
        "*": JobOptions(ttl=10, priority=1, persistence="off"),
        "mail-eu": JobOptions(ttl=99),
    }
    found = options_of("mail-eu", patterns)
    assert found == {"ttl": 99, "priority": 1, "persistence": "off", "retry": [5, 30]}
    assert options_of("mail-us", patterns)["ttl"] == 60
    assert options_of("other", patterns)["ttl"] == 10
    assert options_of("other", {}) == {}


@pytest.mark.parametrize("name", ["", "a.b", "ü", "a b", "x" * 101])
def test_a_pattern_has_signs_that_are_easily_written(name: str) -> None:
    with pytest.raises(ConfigError, match="is no pattern"):
        check(Config(jobs={name: JobOptions()}))


@pytest.mark.parametrize(
    "line",
    [
        "retry = -1",
        "retry = []",
        "retry = [0]",
        "ttl = 0",
        "priority = 10",
        "persistence = 'disk'",
        "max_deliveries = -1",
        "bogus = 1",
    ],
)
def test_what_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text(f"[jobs.'mail-*']\n{line}\n")
    with pytest.raises(ConfigError, match=r"jobs\.mail-\*"):
        load(file)


def test_a_file_with_patterns(tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text("[jobs.'mail-*']\nretry = [5, 30, 300]\nmaxlen = 7\n[jobs.'*']\nttl = 60\n")
    jobs = load(file).config.jobs
    assert jobs["mail-*"] == JobOptions(retry=[5, 30, 300], maxlen=7)


def test_admin_is_an_option_of_resp_alone() -> None:
    config = Config()
    listeners = {name: msgspec.structs.replace(each) for name, each in config.listeners.items()}
    listeners["tcp"] = msgspec.structs.replace(listeners["tcp"], admin=True)
    with pytest.raises(ConfigError, match="with resp://"):
        check(msgspec.structs.replace(config, listeners=listeners))
