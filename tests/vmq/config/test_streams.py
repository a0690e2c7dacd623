from pathlib import Path

import pytest

from vmq.config.checks import check
from vmq.config.load import load
from vmq.config.options import Config, ConfigError, ListenerOptions, StreamOptions
from vmq.config.streams import from_plain


def loaded(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "vmq.toml"
    path.write_text(text)
    return load(path).config


def test_a_stream_needs_filters_only(tmp_path: Path) -> None:
    config = loaded(tmp_path, '[streams.temp]\nfilters = ["sensors/+/temp"]')
    options = config.streams["temp"]
    assert options == StreamOptions(filters=["sensors/+/temp"])
    assert options.retention_age_seconds == 14 * 86_400
    assert options.segment_age_seconds == 86_400
    assert options.key_level == 0


def test_times_may_be_unlimited_and_a_key_a_level() -> None:
    options = StreamOptions(
        filters=["#"], retention_age="never", segment_age="never", key="level:12"
    )
    assert options.retention_age_seconds is None
    assert options.segment_age_seconds == float("inf")
    assert options.key_level == 12


def test_the_environment_states_a_stream() -> None:
    environ = {"VMQ_STREAMS__TEMP__FILTERS": '["a"]', "VMQ_STREAMS__TEMP__KEY": "topic"}
    assert load(None, environ).config.streams["temp"].key == "topic"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('key = "level:0"', '.key = "level:0": accepted: "client_id", "topic", or "level:N"'),
        ('key = "level:129"', ".key"),
        ('key = "payload"', ".key"),
        ("partitions = 0", ".partitions = 0: accepted: a whole number, 1 to 1024"),
        ('retention_age = "14"', '.retention_age = "14": accepted: "never", or a number'),
        ("retention_bytes = -1", ".retention_bytes"),
        ("segment_bytes = 10", ".segment_bytes = 10: accepted: a whole number, 65536 to"),
        ('segment_bytes = "1GiB"', "to 4294967296; without a unit, in bytes: 1073741824"),
        ('segment_bytes = "2 min"', "to 4294967296; without a unit, in seconds: 120"),
        ('compression = "gzip"', '.compression = "gzip": accepted: "none", "lz4", "zstd"'),
        ('acks = "all"', '.acks = "all": accepted: "", "none", "leader", "quorum", '),
        ('durability = "disk"', '.durability = "disk": accepted: "memory", "os", "fsync"'),
        ("replicas = 6", ".replicas = 6: accepted: a whole number, 0 to 5"),
        ("replicas = 3", ".replicas: several copies take nodes of a cluster (cluster.listen)"),
        (
            "archive_required = true",
            ".archive_required = true: there is no archive, and retention would",
        ),
        ('filter = "a"', ".filter = \"a\": unknown option; did you mean 'filters'?"),
        ('filters = ["a/#/b"]', ".filters = [\"a/#/b\"]: misplaced # in filter 'a/#/b'"),
        ('filters = ["$share/g/a"]', "a share group has no meaning"),
        ('filters = ["$jobs/#"]', "no message is published to $jobs/..."),
        ("filters = []", ".filters = []: accepted: a list of topic filters"),
        ("", ".filters: missing; accepted: a list of topic filters"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_accepted(
    tmp_path: Path, line: str, message: str
) -> None:
    filters = "" if line.startswith("filters") or not line else 'filters = ["a"]\n'
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"[streams.temp]\n{filters}{line}\n")
    assert "vmq.toml: streams.temp" + message in str(caught.value) or message in str(caught.value)
    assert "vmq.toml: streams.temp" in str(caught.value)


def test_streams_made_by_calls_are_checked_too() -> None:
    listeners = {"tcp": ListenerOptions(url="tcp://127.0.0.1:0")}
    with pytest.raises(ConfigError, match=r"streams\.x\.partitions"):
        check(
            Config(
                listeners=listeners, streams={"x": StreamOptions(filters=["a"], partitions=5000)}
            )
        )


def test_plain_options_are_checked_whole() -> None:
    assert from_plain("x", {"filters": ["a"]}) == StreamOptions(filters=["a"])
    with pytest.raises(ValueError, match=r"streams\.x: .*lz4|streams\.x: Invalid enum"):
        from_plain("x", {"filters": ["a"], "compression": "bz2"})
    with pytest.raises(ValueError, match=r"streams\.x\.filters: misplaced #"):
        from_plain("x", {"filters": ["#/a"]})
