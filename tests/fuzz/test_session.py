"""Decoder and session under coverage-guided fuzzing, and the corpus against the core as it is built."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.corpus import CORPUS, MAX_BYTES, MAX_FILES
from tests.fuzz.target import Violation, run
from tests.support.tools import require_atheris
from tests.vmq.support import House

ROOT = Path(__file__).parents[2]
#: Some seconds' worth. The same runs each time: what a change breaks is found at the change.
RUNS = 400
OPTIONS = (f"-runs={RUNS}", "-seed=1", "-max_len=2048", "-timeout=20", "-rss_limit_mb=1024")


def fuzz(program: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Fuzzes in a process of its own, on a copy of the corpus; what breaks is left in `folder`."""
    copy = folder / "corpus"
    copy.mkdir()
    for each in CORPUS.iterdir():
        (copy / each.name).write_bytes(each.read_bytes())
    command = [sys.executable, *program, *OPTIONS, f"-artifact_prefix={folder}/", str(copy)]
    return subprocess.run(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=250,
        check=False,
    )


@pytest.mark.timeout(300)
def test_no_input_breaks_a_promise(tmp_path: Path) -> None:
    require_atheris()
    done = fuzz(["-m", "tests.fuzz.session"], tmp_path)
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"Done {RUNS} runs" in done.stdout
    assert not list(tmp_path.glob("crash-*"))


# What guides the search by coverage is left out, which takes most of the time: the corpus shows it.
@pytest.mark.parametrize("name", sorted(each.name for each in CORPUS.iterdir()))
def test_the_corpus_breaks_no_promise(name: str) -> None:
    """On the core as it is built here; the fuzzer itself reads its sources."""
    run((CORPUS / name).read_bytes())


def test_a_queue_without_its_limit_is_a_violation() -> None:
    def plant(house: House) -> None:
        house.core.options.max_offline_messages = -1

    with pytest.raises(Violation, match=r"\d+ messages wait, the limit is 5"):
        run((CORPUS / "seed-backlog").read_bytes(), plant)


def test_the_corpus_is_small() -> None:
    sizes = [each.stat().st_size for each in CORPUS.iterdir()]
    assert len(sizes) <= MAX_FILES
    assert sum(sizes) <= MAX_BYTES
