"""Tests mirror files: vmq_cluster/X.py is tested by tests/cluster/**/test_X.py, or stands in the list below."""

from pathlib import Path

import vmq_cluster

SOURCES = Path(vmq_cluster.__file__).parent
TESTS = Path(__file__).parent

#: Modules without a test file of their own, and where they are tested.
ELSEWHERE = {
    "__init__.py": "there is only a docstring in it",
    "effects.py": "has no behaviour",
    "errors.py": "has no behaviour",
    "forms.py": "raft/test_state.py: what is written down of a log's state",
    "log.py": "raft/log.py has no behaviour: a port",
    "replica.py": "raft/test_*.py: what the roles share",
    "progress.py": "raft/test_leading.py: what a leader knows of its followers",
    "ends.py": "transport/test_unix.py, test_node.py: nodes whose process ends",
    "refusals.py": "the same",
    "peer.py": "test_link.py: what is said over ZeroMQ",
    "leveldb.py": "test_storage.py: beside the one in memory",
    "sockets.py": "test_link.py: the sockets of the link",
    "order.py": "test_channels.py: frames that come twice or late",
    "records.py": "test_metadata.py: seen in what is stored",
    "round_trips.py": "test_detector.py: who is waited for",
    "followers.py": "test_node.py: who is told, and what of callbacks that fail",
    "traffic.py": "test_link.py: what the link counts",
    "unix_listener.py": "transport/test_unix.py, transport/test_accepting.py: both ends",
    "unix_paths.py": "transport/test_unix.py: paths that are in use, left over, too long or no socket",
}

#: Test files that mirror no module, and why.
NO_MIRROR = {
    "test_mirror.py": "the rule itself",
    "test_reconnecting.py": "link.py: connections that die without a word",
}


def test_every_module_has_its_test_file_or_a_reason() -> None:
    modules = {path.name for path in SOURCES.rglob("*.py")}
    missing = {name for name in modules if not list(TESTS.rglob(f"test_{name}"))}
    assert missing == set(ELSEWHERE)


def test_every_test_file_has_its_module_or_a_reason() -> None:
    files = {path.name for path in TESTS.rglob("test_*.py")}
    mirrored = {f"test_{path.name}" for path in SOURCES.rglob("*.py")}
    assert files - mirrored == set(NO_MIRROR)
