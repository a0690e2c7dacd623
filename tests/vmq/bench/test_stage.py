"""Open files, and readings of processes that are not there."""

import resource
from dataclasses import replace

import pytest

from tests.vmq.bench.support import flow_options
from vmq.bench.load.options import BenchError, Scenario
from vmq.bench.scenarios import run
from vmq.bench.stage import need_files
from vmq.testing.process import BrokerProcess


def test_more_connections_than_files_are_an_error() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        need_files(10_000_000)
        return
    with pytest.raises(BenchError, match=f"the limit is {hard}"):
        need_files(hard)


def test_the_limit_is_raised_as_far_as_needed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        need_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_process_that_is_not_there_is_an_error(broker: BrokerProcess) -> None:
    host, port = broker.tcp
    options = flow_options(f"mqtt://{host}:{port}", Scenario.CONNECT, clients=1)
    with pytest.raises(BenchError, match="cannot read the usage of process 999999999"):
        run(replace(options, pid=999_999_999))
