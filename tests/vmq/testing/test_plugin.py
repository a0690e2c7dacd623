"""The fixtures as pytest finds them: in a suite that has no use for them, in a project of its own, side by side."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.pages import ROOT, pytest_in
from tests.vmq.cli.program import run

pytestmark = pytest.mark.timeout(300)


def test_a_suite_that_does_not_use_it_loads_nothing() -> None:
    code = """
import sys, pytest
before = set(sys.modules)
import vmq.testing.plugin
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["vmq", "vmq.testing", "vmq.testing.plugin", "vmq.version"]


def test_pytest_finds_it_by_itself() -> None:
    from importlib.metadata import entry_points

    (found,) = [each for each in entry_points(group="pytest11") if each.name == "vmq"]
    assert found.value == "vmq.testing.plugin"


@pytest.mark.skipif(not (ROOT / "setup.py").is_file(), reason="what is installed is tested so")
def test_a_new_plugin_s_project_passes_its_tests_in_an_empty_environment(tmp_path: Path) -> None:
    """Empty but for what vmq brings: a plain `pytest` finds the fixtures, the plugin is found by its entry point."""
    assert run("plugin", "new", "rooms", "--folder", str(tmp_path / "project")).code == 0
    environment = tmp_path / "venv"
    venv.create(environment)
    python = environment / "bin" / "python"
    (site,) = environment.glob("lib/python*/site-packages")
    theirs = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "vmq.pth").write_text(f"import site; site.addsitedir({theirs!r})\n")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*pip, *offline, str(tmp_path / "project")], check=True, timeout=200)
    for more in ((), ("-n", "2")):
        done = subprocess.run(
            [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, "tests"],
            cwd=tmp_path / "project",
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "4 passed" in done.stdout
    code = "from importlib.metadata import entry_points as e; print(*e(group='vmq.plugins').names)"
    found = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    assert "rooms" in found.stdout.split()


SUITE = '''
import pytest
import vmq.testing


@pytest.fixture
def vmq_options():
    return {"queue": {"drop": "oldest"}}


def test_the_suite_s_own_options(vmq_broker):
    assert vmq_broker.broker.config.queue.drop == "oldest"


@pytest.mark.parametrize("number", range(8))
def test_many(vmq_broker, vmq_client, number):
    """Each has a broker of its own."""
    client = vmq_client()
    client.publish("number", str(number), qos=1, retain=True)
    client.subscribe("#")
    assert client.receive().payload == b"%d" % number


def test_a_client_of_both(vmq_broker, vmq_process, vmq_client):
    assert vmq_client()._session.connection.target.port == vmq_process.port
    vmq_client(url=vmq_broker.url).publish("a", "", qos=1)
'''


def test_fixtures_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    assert "10 passed" in pytest_in(tmp_path, "-p", "xdist", "-n", "2")


MARKS = """
import pytest

pytestmark = pytest.mark.vmq(queue={"drop": "oldest"}, limits={"max_message_size": 10})


@pytest.mark.vmq(limits={"max_message_size": 20})
class TestNear:
    @pytest.mark.vmq(session={"owner": "client_id"})
    def test_all(self, vmq_broker):
        config = vmq_broker.broker.config
        assert (config.queue.drop, config.limits.max_message_size) == ("oldest", 20)
        assert config.session.owner == "client_id"


def test_far(vmq_broker):
    assert vmq_broker.broker.config.limits.max_message_size == 10


@pytest.mark.vmq({"limits": {}})
def test_a_mapping(request):
    with pytest.raises(TypeError, match="has {'limits': {}}; accepted: keywords"):
        request.getfixturevalue("vmq_options")


def test_a_payload(vmq_client):
    with pytest.raises(TypeError, match="payload 5; accepted: bytes or text"):
        vmq_client().publish("a", 5)


def test_no_broker_unless_one_is_asked_for(vmq_client, tmp_path):
    assert not (tmp_path / "vmq").exists()
"""


def test_the_nearest_mark_wins(tmp_path: Path) -> None:
    (tmp_path / "test_marks.py").write_text(MARKS)
    assert "5 passed" in pytest_in(tmp_path)
