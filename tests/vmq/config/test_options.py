"""The options: what they promise to code that holds them. Their defaults: config/reference.toml (test_reference.py)."""

import pytest

import vmq.config.options
from vmq.config.checks import check
from vmq.config.load import load
from vmq.config.options import AuthOptions, Config, ListenerOptions


def test_the_defaults_pass_the_check() -> None:
    check(Config())


def test_without_sources_loading_gives_the_defaults() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert {origin for _, _, origin in loaded.items()} == {"default"}


def test_one_configuration_does_not_share_listeners_with_another() -> None:
    Config().listeners.clear()
    assert set(Config().listeners) == {"tcp", "ws", "http"}


@pytest.mark.parametrize(
    ("auth", "listener", "here", "elsewhere"),
    [
        ("loopback", None, True, False),
        ("loopback", False, False, False),
        ("loopback", True, True, True),
        (True, None, True, True),
        (True, False, False, False),
        (False, None, False, False),
        (False, True, True, True),
    ],
)
def test_who_may_be_anonymous_where(
    auth: bool, listener: bool | None, here: bool, elsewhere: bool
) -> None:
    config = Config(
        auth=AuthOptions(allow_anonymous=auth),
        listeners={
            "here": ListenerOptions(url="tcp://127.0.0.1:1", allow_anonymous=listener),
            "elsewhere": ListenerOptions(url="tcp://0.0.0.0:1", allow_anonymous=listener),
        },
    )
    assert config.anonymous_allowed("here") is here
    assert config.anonymous_allowed("elsewhere") is elsewhere


def test_configurations_cannot_change_under_a_running_broker() -> None:
    with pytest.raises(AttributeError):
        Config().queue.drop = "oldest"  # type: ignore[misc]


def test_everything_that_the_module_promises_is_there() -> None:
    assert [
        name for name in vmq.config.options.__all__ if not hasattr(vmq.config.options, name)
    ] == []
