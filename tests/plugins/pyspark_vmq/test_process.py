import subprocess
import sys
from pathlib import Path

PROGRAM = """
import ctypes, gc, resource
from pyspark_vmq.process import prepare, spare_collector

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def churn():
    # As gRPC does: a large piece of the heap is taken, touched and freed, again and again.
    before = faults()
    for _ in range(50):
        pieces = [ctypes.c_void_p(libc.malloc(1 << 20)) for _ in range(8)]
        for piece in pieces:
            ctypes.memset(piece, 1, 1 << 20)
        for piece in pieces:
            libc.free(piece)
    return faults() - before

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
spare_collector()
spared = gc.get_freeze_count()
before = churn()
prepare()
churn()
after = churn()
frozen = gc.get_freeze_count()
prepare()
spare_collector()
print(before, after, spared, frozen, gc.get_freeze_count() == frozen, hasattr(libc, "mallopt"))
"""


def test_the_heap_is_kept_and_the_collector_spared() -> None:
    """In a process of its own: both last as long as the process does."""
    folder = str(Path(__file__).parents[3] / "plugins")
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": folder},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    before, after, spared, frozen, once, glibc = run.stdout.split()
    assert 1000 < int(spared) < int(frozen)
    assert once == "True"
    if glibc == "True":
        assert int(after) < int(before) / 10, run.stdout
