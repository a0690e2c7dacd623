"""What a node knows of its machine."""

from pathlib import Path

from vmq_cluster.surroundings import this_boot


def test_the_boot_of_this_machine_has_a_name() -> None:
    assert this_boot() == this_boot()
    assert not Path("/proc/sys/kernel/random/boot_id").exists() or this_boot()
