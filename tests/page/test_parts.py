"""Views of parts that few brokers have: a cluster, and Spark's pipelines."""

import os
from pathlib import Path

from vmq_spark import status
from vmq_spark.locks import take_lock
from vmq_spark.status import Progress, QueryProgress, RunnerStatus

from tests.page.conftest import PageBroker
from tests.page.live_page import LivePage, link_of
from tests.page.test_views import LISTENERS
from tests.support.present import present
from vmq.testing.ports import lasting_ports

NODE = """
[cluster]
node_name = "{name}"
listen = "tcp://127.0.0.1:{port}"
join = [{join}]
heartbeat_interval = 0.2
heartbeat_timeout = 2
"""


def slots_of(row: int, what: str = "owned") -> str:
    """How many slots the Cluster view says that a node has, as JavaScript."""
    heads = "[...document.querySelectorAll('[aria-label=Nodes] thead th')]"
    place = f"{heads}.findIndex(each => each.innerText.startsWith('slots'))"
    cell = f"document.querySelectorAll('[aria-label=Nodes] tbody tr')[{row}].cells[{place}]"
    part = ("owned", "copies").index(what)
    return f"Number({cell}.innerText.split(' · ')[{part}].replace(/\\D/g, ''))"


def test_nodes_are_shown_and_one_that_dies_is_taken_out(
    page: LivePage, start_page: PageBroker
) -> None:
    ports = lasting_ports(2)
    join = f'"tcp://127.0.0.1:{ports[0]}"'
    here = start_page(LISTENERS + NODE.format(name="a", port=ports[0], join=""), "a", ())
    other = start_page(LISTENERS + NODE.format(name="b", port=ports[1], join=join), "b", ())
    page.enter(link_of(here, "--change"))
    page.until("[...document.querySelectorAll('nav a')].some(each => each.innerText === 'Cluster')")
    page.go("cluster")
    page.until("document.querySelectorAll('[aria-label=Nodes] tbody tr').length === 2")
    row = "[...document.querySelectorAll('[aria-label=Nodes] tbody tr')].find(each => each.innerText.startsWith('b'))"
    page.until(f"{row}.innerText.includes('reached') && !{row}.innerText.includes('not reached')")
    page.until(f"{row}.innerText.includes('ms') || {row}.innerText.includes('µs')")
    # All slots are owned, and each has its copy at the other node.
    page.until(slots_of(0) + " + " + slots_of(1) + " === 1024")
    page.until(slots_of(0, "copies") + " === " + slots_of(1))
    page.picture("cluster")
    other.kill()
    page.says("1,024 slots have no copy.")
    one = "import('/page/views/cluster.js').then(view => view.missingOf([{slots_without_follower: 1}]))"
    assert page.run(f"() => {one}") == "1 slot has no copy."
    page.says("This node does not reach b.")
    page.says("b: joined → joined, not reached")
    page.run(f"() => {{ {row}.click(); }}")
    page.click("Take it out")
    page.click("Take it out", "dialog button")
    page.says("b was taken out.")
    page.until(f"!{row} || {row}.innerText.includes('removed')")


def test_pipelines_are_shown_with_how_far_they_are(
    page: LivePage, start_page: PageBroker, tmp_path: Path
) -> None:
    """A pipeline that runs, by the files that its runner and its driver write."""
    folder = tmp_path / "data" / "plugins" / "vmq_spark" / "pipelines" / "sensors"
    folder.mkdir(parents=True)
    with os.fdopen(present(take_lock(folder))):
        status.write(folder, RunnerStatus(state="running", restarts=3))
        query = QueryProgress(batch=7, rows=70, rows_per_second=12.5, lag={"a": {"0": 5, "1": 6}})
        status.write(folder, Progress({"averages": query}))
        page.enter(
            link_of(start_page(LISTENERS + "[plugins.vmq_spark]\ninterval = 0.1\n", listen=()))
        )
        page.go("pipelines")
        page.until("document.querySelector('[aria-label=Pipelines] tbody tr')")
        shown = page.value("document.querySelector('[aria-label=Pipelines] tbody tr').innerText")
        assert shown.split("\t") == ["sensors", "running", "3"]
        shown = page.value("document.querySelector('[aria-label=Queries] tbody tr').innerText")
        assert shown.split("\t")[:4] == ["sensors · averages", "11", "13/s", "70"]
        page.picture("pipelines")
    page.until(
        "document.querySelector('[aria-label=Pipelines] tbody tr').innerText.includes('not running')"
    )
