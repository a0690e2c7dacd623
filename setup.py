"""Compiles the core with mypyc; VMQ_PURE=1 builds the same files as plain Python."""

import os
from pathlib import Path

from setuptools import Extension, setup

# The modules on the path of every message. They use each other's classes natively, which needs one compilation group:
# one for each package that can be installed alone. Modules that define messages (msgspec.Struct) cannot be compiled.
COMPILED = (
    "vmq/mqtt/packets.py",
    "vmq/mqtt/decoder.py",
    "vmq/mqtt/encoder.py",
    "vmq/mqtt/topics.py",
    "vmq/mqtt/message.py",
    "vmq/mqtt/packet_ids.py",
    "vmq/core/limits.py",
    "vmq/core/output.py",
    "vmq/streams/serving/batch_commit.py",
    "vmq/core/on_commit.py",
    "vmq/core/losses.py",
    "vmq/core/context.py",
    "vmq/core/retained_burst.py",
    "vmq/core/inflight.py",
    "vmq/core/waiting.py",
    "vmq/core/queue.py",
    "vmq/core/trie.py",
    "vmq/core/retained.py",
    "vmq/core/leaving.py",
    "vmq/core/registry.py",
    "vmq/protocol/refusals.py",
    "vmq/protocol/connect.py",
    "vmq/protocol/publish.py",
    "vmq/protocol/subscribe.py",
    "vmq/protocol/session.py",
    "vmq/protocol/connection.py",
    "vmq/protocol/will.py",
    "vmq/protocol/rights.py",
    "vmq/protocol/retain_source.py",
    "vmq/protocol/will_publish.py",
    "vmq/store/sizes.py",
    "vmq/store/lines.py",
    "vmq/store/store.py",
    "vmq/core/hook_sites.py",
    "vmq/runtime/deadlines.py",
    "vmq/clustering/delivery/outbox_storage.py",
    "vmq/clustering/delivery/outbox.py",
    "vmq/clustering/delivery/outboxes.py",
    "vmq/clustering/delivery/inbox.py",
    "vmq/clustering/routing/routing.py",
    "vmq/clustering/messages/records.py",
    "vmq/clustering/replication/follower_state.py",
    "vmq/clustering/replication/lag.py",
    "vmq/clustering/replication/catch_up.py",
    "vmq/clustering/replication/leader.py",
    "vmq/clustering/replication/follower.py",
    "vmq/clustering/replication/service.py",
    "vmq/clustering/routing/shared_dispatch.py",
    "vmq/listeners/acceptor.py",
    "vmq/listeners/listener.py",
    "vmq/listeners/tls.py",
)

COMPILED_CLUSTER = (
    "cluster/vmq_cluster/channels.py",
    "cluster/vmq_cluster/detector.py",
    "cluster/vmq_cluster/order.py",
    "cluster/vmq_cluster/machine.py",
    "cluster/vmq_cluster/node.py",
)


def compiled_modules() -> list[Extension]:
    """The extension modules of this build: none in a pure one."""
    if os.environ.get("VMQ_PURE") == "1":
        return []
    # The shared library of a group becomes vmq/_core__mypyc: inside the package, where an editable install finds it.
    return compile_group("vmq._core", COMPILED) + compile_group(
        "vmq_cluster._core", COMPILED_CLUSTER
    )


def compile_group(name: str, paths: tuple[str, ...]) -> list[Extension]:
    """The extension modules of those sources that there are."""
    from mypyc.build import mypycify

    sources = [path for path in paths if Path(path).is_file()]
    return mypycify(sources, opt_level="3", debug_level="0", group_name=name) if sources else []


setup(ext_modules=compiled_modules())
