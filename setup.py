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
    "vmq/message.py",
    "vmq/packet_ids.py",
    "vmq/limits.py",
    "vmq/output.py",
    "vmq/step.py",
    "vmq/checkpoint.py",
    "vmq/losses.py",
    "vmq/core.py",
    "vmq/burst.py",
    "vmq/sender.py",
    "vmq/waiting.py",
    "vmq/queue.py",
    "vmq/trie.py",
    "vmq/retain.py",
    "vmq/leaving.py",
    "vmq/registry.py",
    "vmq/refusing.py",
    "vmq/connecting.py",
    "vmq/publishing.py",
    "vmq/subscribing.py",
    "vmq/session.py",
    "vmq/connection.py",
    "vmq/will.py",
    "vmq/rights.py",
    "vmq/retain_source.py",
    "vmq/will_publishing.py",
    "vmq/store_sizes.py",
    "vmq/store_lines.py",
    "vmq/store.py",
    "vmq/hooks.py",
    "vmq/watch.py",
    "vmq/clustering/spool.py",
    "vmq/clustering/lane.py",
    "vmq/clustering/lanes.py",
    "vmq/clustering/arrivals.py",
    "vmq/clustering/routing.py",
    "vmq/clustering/replica_records.py",
    "vmq/clustering/replica_peer.py",
    "vmq/clustering/marks.py",
    "vmq/clustering/filling.py",
    "vmq/clustering/replicas.py",
    "vmq/clustering/copies.py",
    "vmq/clustering/replication.py",
    "vmq/clustering/sharing.py",
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
