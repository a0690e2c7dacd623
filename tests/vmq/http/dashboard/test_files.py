import gzip
import hashlib
import re
from pathlib import Path

import pytest

from tests.vmq.http.conftest import get, web_broker
from vmq.http.dashboard.files import FOLDER, page_files
from vmq.testing.process import BrokerProcess

__all__ = ["web_broker"]

OURS = sorted(path for path in FOLDER.rglob("*.js") if "vendor" not in path.parts)


def test_the_page_is_small_when_it_travels() -> None:
    files = {name: each for name, each in page_files().items() if not name.endswith(".txt")}
    assert {"index.html", "app.css", "app.js", "views/wrong.js"} <= set(files)
    assert sum(len(each.compressed) for each in files.values()) < 250 * 1024


def test_nothing_but_what_is_listed_is_served(web_broker: BrokerProcess) -> None:
    for path in (
        "/page/",
        "/page/nothing.js",
        "/page/../files.py",
        "/page/%2e%2e/files.py",
        "/page/..%2ffiles.py",
        "/page//etc/passwd",
        "/page/vendor",
        "/page/index.html/",
    ):
        assert get(web_broker.http, path).status == 404, path


def test_a_policy_forbids_all_that_is_not_its_own(web_broker: BrokerProcess) -> None:
    answer = get(web_broker.http, "/")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"


def test_it_is_compressed_and_asked_for_once(web_broker: BrokerProcess) -> None:
    plain = get(web_broker.http, "/page/app.css")
    packed = get(web_broker.http, "/page/app.css", {"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body == (FOLDER / "app.css").read_bytes()
    again = get(web_broker.http, "/page/app.css", {"If-None-Match": plain.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_script_makes_no_markup_of_text(path: Path) -> None:
    """Whatever strangers wrote, no script of ours can turn it into elements, code or styles."""
    text = path.read_text()
    found = re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|"
        r"createContextualFragment|setHTML|javascript:|\.cssText|setAttribute\(\"style",
        text,
    )
    assert found is None


def test_nothing_stands_inline() -> None:
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|https?://", page)


def test_what_others_made_is_as_they_published_it() -> None:
    """vendor/versions.txt lists each file with its version, its licence and its sha256."""
    folder = FOLDER / "vendor"
    rows = [
        line.split()
        for line in (folder / "versions.txt").read_text().splitlines()
        if line[:1] != "#"
    ]
    listed = {file: digest for file, _, _, digest in rows}
    there = {path.name for path in folder.iterdir()} - {"versions.txt"}
    licences = {name for name in there if name.endswith("-LICENSE.txt")}
    assert there - licences == set(listed)
    assert licences
    for file, digest in listed.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest, file
