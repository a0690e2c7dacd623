"""Users, rules and TLS: those of MQTT."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spark.support import Bridge, fails, send, stream_environment
from vmq.testing.authority import Authority

ACL = """\
user ann
topic readwrite locked/#
user bob
topic read other/#
topic write locked/bob
"""

CONFIG = """\
[plugins.passwd]
file = "{folder}/passwd"
[plugins.acl]
file = "{folder}/acl"
[listeners.mqtt]
url = "tcp://127.0.0.1:0"
[listeners.flight]
url = "grpc+tls://127.0.0.1:0"
certfile = "{cert}"
keyfile = "{key}"
"""


@pytest.fixture
def guarded(own_broker: Callable[..., Bridge], tmp_path: Path) -> Bridge:
    """A broker with users ann and bob that is reached by TLS."""
    from vmq_passwd import editing

    for name in ("ann", "bob"):
        editing.add(tmp_path / "passwd", name, name.encode())
    (tmp_path / "acl").write_text(ACL)
    authority = Authority(tmp_path)
    issued = authority.issue("localhost", ["localhost"])
    config = tmp_path / "vmq.toml"
    config.write_text(CONFIG.format(folder=tmp_path, cert=issued.certfile, key=issued.keyfile))
    bridge = own_broker(
        listen=(), args=("--config", str(config)), **stream_environment({"locked": 1})
    )
    send(bridge.broker, [("locked/x", b"1")] * 20, username="ann", password="ann")
    return bridge


def test_users_rules_and_tls_are_those_of_mqtt(guarded: Bridge, tmp_path: Path) -> None:
    tls: dict[str, Any] = {
        "server": guarded.url.replace("127.0.0.1", "localhost"),
        "cafile": tmp_path / "ca.pem",
    }
    ann = {**tls, "username": "ann", "password": "ann"}
    bob = {**tls, "username": "bob", "password": "bob"}
    assert guarded.load(**ann, stream="locked").count() == 20

    with fails("'bob' may not read stream 'locked'"):
        guarded.load(**bob, stream="locked").count()
    with fails("option 'topic'", "no stream keeps all of 'locked/#'"):
        guarded.load(**bob, topic="locked/#").count()
    with fails("refuses user 'ann'", "options 'username' and 'password'"):
        guarded.load(**{**ann, "password": "wrong"}, stream="locked").count()
    with fails("option 'server'", "certificate verify failed", "option 'cafile'"):
        guarded.load(**{**ann, "cafile": "", "retryTimeout": 0}, stream="locked").count()

    row = guarded.spark.sql("select 'x' payload")
    guarded.save(row, **bob, topic="locked/bob")
    with fails("'bob'", "may not publish", "'locked/ann'"):
        guarded.save(row, **bob, topic="locked/ann")
    assert guarded.load(**ann, stream="locked").count() == 21
