"""What a process and its children cost: CPU time and memory, from the kernel (Linux)."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """What a tree of processes has used so far."""

    cpu: float  # seconds, user and system
    rss: int  # bytes
    processes: int
    threads: int


def usage_of(pid: int) -> Usage:
    """The usage of a process and its descendants.

    Raises:
        OSError: there is no such process, or no /proc.
    """
    if not (_PROC / str(pid) / "stat").is_file():
        raise ProcessLookupError(f"no process {pid} in /proc")
    cpu = 0.0
    rss = processes = threads = 0
    for each in tree_of(pid):
        try:
            status = (_PROC / str(each) / "status").read_text()
            cpu += cpu_of(each)
        except OSError:
            continue  # it has ended meanwhile
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        rss += int(fields.get("VmRSS", "0").split()[0]) * 1024
        threads += int(fields.get("Threads", "0"))
        processes += 1
    return Usage(cpu, rss, processes, threads)


def cpu_of(pid: int) -> float:
    """CPU seconds of one process, all its threads included, to the nanosecond."""
    # The clock id of a process, as clock_getcpuclockid() makes it on Linux.
    return time.clock_gettime(~pid << 3 | 2)


def resident(pid: int) -> int:
    """The memory of one process in bytes, 0 if it is gone. Cheap enough to ask while a measurement runs."""
    try:
        pages = (_PROC / str(pid) / "statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGESIZE")


def tree_of(pid: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(errors="replace")
            except OSError:
                continue
            # The name, in parentheses, may hold anything.
            parent = int(stat.rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found
