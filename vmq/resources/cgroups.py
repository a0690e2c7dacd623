"""What Linux leaves a process of the machine's memory: the limits of its control groups.

A limit binds everything below the group that has it, so the smallest one on the way up to the root counts: the group
of a container or of a systemd unit (MemoryMax, MemoryHigh) is often above the process's own. See cgroups(7).
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

#: Files with a limit, of version 2 and of version 1. Above memory.high the kernel takes memory away by force, and a
#: process there hardly runs any more.
_FILES: Final = {
    "cgroup2": ("memory.max", "memory.high"),
    "cgroup": ("memory.limit_in_bytes",),
}


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes that the control groups of this process allow it; None: they set no limit that can be seen.

    Args:
        root: where /proc and the file systems of control groups are.
    """
    try:
        mounts = (root / "proc/self/mountinfo").read_text()
        groups = (root / "proc/self/cgroup").read_text()
    except OSError:
        return None
    limits: list[int] = []
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        version, _, options = kind.partition(" ")
        if version not in _FILES or (
            version == "cgroup" and "memory" not in re.split("[ ,]", options)
        ):
            continue
        top, point = (_unescaped(field) for field in mount.split()[3:5])
        own = _own_group(groups, version)
        if own is not None:
            for folder in _upwards(root / point.lstrip("/"), top, own):
                limits.extend(_limits_in(folder, version))
    return min(limits, default=None)


def _unescaped(field: str) -> str:
    """A path as mountinfo has it: blanks and the like are octal there."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def _own_group(groups: str, version: str) -> str | None:
    """The path of this process's group among those of a version, from the root of the hierarchy."""
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers if version == "cgroup2" else "memory" in controllers.split(","):
            return path
    return None


def _upwards(point: Path, top: str, own: str) -> Iterator[Path]:
    """The folders of a group and of those above it; `top` is the group that is mounted at `point`.

    What the mount does not show, as in a container with a name space of its own, begins at the mount point.
    """
    below = PurePosixPath(own)
    if below.is_relative_to(top) and ".." not in below.parts:
        inner = below.relative_to(top)
        yield from (point / each for each in (inner, *inner.parents))
    else:
        yield point


def _limits_in(folder: Path, version: str) -> Iterator[int]:
    for name in _FILES[version]:
        text = _text(folder / name).strip()
        if text.isdigit():  # else "max"
            yield int(text)
    if version == "cgroup":  # knows of groups above those that a container sees
        found = re.search(r"^hierarchical_memory_limit (\d+)$", _text(folder / "memory.stat"), re.M)
        if found is not None:
            yield int(found[1])


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
