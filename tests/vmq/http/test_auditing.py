"""What the audit log says of who came over HTTP."""

import logging

import pytest

from tests.vmq.http.conftest import Site
from vmq.admin.keys import ApiKeys

CHANGE = {"option": "queue.drop", "value": "oldest"}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "vmq.audit"]


async def post(site: Site, key: str, change: dict[str, str]) -> int:
    url = site.base + "/api/v1/option"
    async with site.client.post(url, headers={"x-api-key": key}, json=change) as answer:
        return answer.status


async def test_a_key_is_named_with_its_address_whatever_the_result(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    keys = ApiKeys(site.folder)
    robot, nameless = keys.create("robot"), keys.create()
    assert await post(site, robot.key, CHANGE) == 200
    assert await post(site, nameless.key, {"option": "no.such", "value": "1"}) >= 400
    assert await post(site, robot.key, {"option": "queue.drop"}) == 400
    begin, end = "operation name=set_option by=", 'result="'
    by_robot = f"\"api key 'robot' ({robot.id})\" peer=127.0.0.1"
    done, unknown, mistaken = told(caplog)
    parameters = 'parameters={"option": "queue.drop", "value": "oldest"}'
    assert done == f'{begin}{by_robot} {parameters} result="ok"'
    assert unknown.startswith(f'{begin}"api key {nameless.id}" peer=127.0.0.1')
    assert f"{end}refused: " in unknown
    assert mistaken.startswith(begin + by_robot)
    assert f"{end}refused: " in mistaken


async def test_who_has_no_good_key_is_told_of(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    reader = ApiKeys(site.folder).create("dashboard", "read")
    assert await post(site, "vmq_sesame", CHANGE) == 401
    assert await post(site, reader.key, CHANGE) == 403
    begin = 'api key refused peer=127.0.0.1 path="/api/v1/option" by='
    found = told(caplog)
    assert found == [f'{begin}"nobody"', f"{begin}\"api key 'dashboard' ({reader.id})\""]


async def test_a_defect_is_told_of(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("sore")

    caplog.set_level(logging.INFO, "vmq.audit")
    monkeypatch.setattr("vmq.http.operations.options.options.set_option", broken)
    assert await post(site, ApiKeys(site.folder).create().key, CHANGE) == 500
    assert told(caplog)[0].endswith('result="failed: RuntimeError"')


async def test_who_looks_is_not_told_of(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    key = ApiKeys(site.folder).create().key
    url = site.base + "/api/v1/options"
    async with site.client.get(url, headers={"x-api-key": key}) as answer:
        assert answer.status == 200
    assert told(caplog) == []
