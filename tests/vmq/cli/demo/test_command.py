"""`vmq demo`, without Spark; with it: tests/spark/test_demo.py."""

import json
import re
import signal
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.vmq.cli.program import Program, run
from vmq.cli.main import main


def without_java(tmp_path: Path) -> dict[str, str]:
    return {"JAVA_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--window", "soon"), "--window: 'soon' is no duration"),
        (("--devices", "1"), "Invalid value for '--devices'"),
        (("--seconds", "-1"), "Invalid value for '--seconds'"),
        (("--nodes", "9"), "Invalid value for '--nodes'"),
    ],
)
def test_wrong_options_are_named(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert main(["demo", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_is_there_is_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["demo", "--keep", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.timeout(300)
def test_several_nodes_are_killed_one_after_the_other(tmp_path: Path) -> None:
    arguments = ("demo", "--self-test", "--nodes", "2", "--devices", "40")
    with Program(*arguments, env=without_java(tmp_path)) as demo:
        done = demo.finish(timeout=280)
    assert done.code == 0, (done.out, done.err)
    assert b"self-test: nothing is lost\n" in done.out
    found = re.search(rb"sent (\d+), received (\d+), lost 0.*killed 2 times", done.out)
    assert found is not None, done.out
    assert found[1] == found[2]


def test_buttons_are_for_the_page_alone_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    arguments = ("demo", "--no-browser", "--devices", "40", "--keep", str(keep))
    with Program(*arguments, env=without_java(tmp_path)) as demo:
        url = demo.wait_out("^vmq demo: (.*)$").split()[-1]
        demo.wait_out("^no Spark: Spark needs Java")

        def ask(method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
            connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            return answer.status, body

        status, page = ask("GET", "/", {})
        assert status == 200
        word = re.search(rb'name="word" content="([^"]+)"', page)
        assert word is not None
        good = {"X-Vmq-Demo": word[1].decode()}
        assert ask("GET", "/", {"Host": "evil.example"})[0] == 421
        assert ask("POST", "/do/kill-data", {})[0] == 403
        assert ask("POST", "/do/kill-data", {"X-Vmq-Demo": "x"})[0] == 403
        assert ask("GET", "/demo/..%2fcommand.py", {})[0] == 404
        said = json.loads(ask("POST", "/do/nothing", good)[1])["said"]
        assert said == "There is no such button."
        link = json.loads(ask("POST", "/do/open-data", good)[1])["said"]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=\S+", link)
        demo.signal(signal.SIGINT)
        done = demo.finish(timeout=60)
    assert done.code == 0, done.err
    assert b"demo: 40 devices, sent" in done.out
    assert (keep / "data" / "store").is_dir()


def test_a_broker_that_does_not_start_says_why(tmp_path: Path) -> None:
    env = {**without_java(tmp_path), "VMQ_QUEUE__DROP": "nobody"}
    run("demo", "--no-browser", env=env).tells(1, "the broker did not start", "queue.drop")
