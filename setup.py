"""Compiles the core with mypyc; VMQ_PURE=1 builds the same files as plain Python."""

import os
from pathlib import Path

from setuptools import Extension, setup

# The modules on the path of every message. They use each other's classes natively, which needs one compilation group.
COMPILED = (
    "vmq/mqtt/packets.py",
    "vmq/mqtt/decoder.py",
    "vmq/mqtt/encoder.py",
    "vmq/mqtt/topics.py",
    "vmq/message.py",
    "vmq/limits.py",
    "vmq/output.py",
    "vmq/step.py",
    "vmq/checkpoint.py",
    "vmq/core.py",
    "vmq/burst.py",
    "vmq/sender.py",
    "vmq/queue.py",
    "vmq/trie.py",
    "vmq/retain.py",
    "vmq/registry.py",
    "vmq/refusing.py",
    "vmq/connecting.py",
    "vmq/publishing.py",
    "vmq/session.py",
    "vmq/connection.py",
    "vmq/will.py",
    "vmq/store.py",
    "vmq/hooks.py",
    "vmq/watch.py",
    "vmq/listeners/acceptor.py",
    "vmq/listeners/listener.py",
    "vmq/listeners/tls.py",
)


def compiled_modules() -> list[Extension]:
    """The extension modules of this build: none in a pure one."""
    sources = [path for path in COMPILED if Path(path).is_file()]
    if os.environ.get("VMQ_PURE") == "1" or not sources:
        return []
    from mypyc.build import mypycify

    # The shared library of the group becomes vmq/_core__mypyc: inside the package, where an editable install finds it.
    return mypycify(sources, opt_level="3", debug_level="0", group_name="vmq._core")


setup(ext_modules=compiled_modules())
