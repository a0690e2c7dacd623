"""The description of the API: valid, and true."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect
from vmq_hooks import Plugin

from tests.support.peer import Peer
from tests.vmq.http.conftest import Site, ask, get
from vmq.http.openapi import HEALTH, describe
from vmq.http.operations import OPERATIONS
from vmq.testing.process import BrokerProcess


def test_names_and_paths_are_unique() -> None:
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)
    assert len({(each.method, each.path) for each in OPERATIONS}) == len(OPERATIONS)


def test_everything_an_operation_takes_is_described() -> None:
    document = describe(OPERATIONS, "", with_keys=False)
    for operation in OPERATIONS:
        described = document["paths"][operation.path][operation.method.lower()]
        if operation.method == "POST":
            name = described["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            names = list(document["components"]["schemas"][name.rpartition("/")[2]]["properties"])
        else:
            names = [each["name"] for each in described["parameters"]]
        assert names == list(operation.parameters.__struct_fields__), operation.name


async def test_it_is_valid_and_served_without_a_key_and_lists_what_is_served(
    site: Site, local: Site
) -> None:
    from openapi_spec_validator import OpenAPIV31SpecValidator  # slow

    found: dict[bool, dict[str, Any]] = {}
    for each, is_local in ((site, False), (local, True)):
        async with each.client.get(each.base + "/api/v1/openapi.json") as answer:
            document = found[is_local] = await answer.json()
        assert ("security" in document) is not is_local
        assert ("/api/v1/api-keys" in document["paths"]) is is_local
        assert "/api/v1/sessions" in document["paths"]
        assert ("/health/ready" in document["paths"]) is not is_local
    # Both at once: it takes seconds.
    whole = found[True] | found[False]
    whole["paths"] = found[True]["paths"] | found[False]["paths"]
    schemas = [each["components"]["schemas"] for each in found.values()]
    whole["components"]["schemas"] = schemas[0] | schemas[1]
    assert list(OpenAPIV31SpecValidator(whole).iter_errors()) == []


def errors(schema: dict[str, Any], body: Any) -> list[Any]:
    """What is wrong with an answer."""
    from openapi_schema_validator import OAS31Validator  # slow

    return list(OAS31Validator(schema).iter_errors(body))


def test_health_is_answered_as_described(web_broker: BrokerProcess) -> None:
    document = describe(OPERATIONS, "/api/v1", with_keys=True)
    for path in HEALTH:
        described = document["paths"][path]["get"]
        assert described["security"] == []
        answer = get(web_broker.http, path)
        schema = described["responses"][str(answer.status)]["content"]["application/json"]["schema"]
        assert errors({**document, **schema}, answer.json()) == []


QUESTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/sessions", {}),
    ("GET", "/session", {"client_id": "me"}),
    ("GET", "/queue", {"client_id": "me"}),
    ("GET", "/retained", {}),
    ("GET", "/retained/message", {"topic": "r"}),
    ("GET", "/listeners", {}),
    ("GET", "/metrics", {}),
    ("GET", "/options", {}),
    ("GET", "/why", {"client_id": "me", "topic": "t"}),
    ("GET", "/why/subscribe", {"client_id": "me", "filter": "t"}),
    ("GET", "/why/receive", {"client_id": "me", "topic": "t"}),
    ("POST", "/ban", {"client_id": "pest", "seconds": 60}),
    ("GET", "/bans", {}),
    ("DELETE", "/ban", {"client_id": "pest"}),
    ("DELETE", "/ban", {"client_id": "nobody"}),
    ("POST", "/api-key", {"name": "x"}),
    ("GET", "/api-keys", {}),
    ("POST", "/listener/stop", {"name": "tcp"}),
    ("POST", "/listener/stop", {"name": "tcp"}),
    ("POST", "/listener/start", {"name": "tcp"}),
    ("POST", "/option", {"option": "queue.max_online_messages", "value": 7}),
    ("POST", "/option", {"option": "queue.drop", "value": "oldest"}),
    ("DELETE", "/option", {"option": "queue.drop"}),
    ("POST", "/jobs/job", {"queue": "q", "body": "x"}),
    ("POST", "/jobs/job", {"queue": "q", "body": "x", "replicate": 2}),
    ("POST", "/jobs/job", {"queue": "q", "body": "x", "replicate": 0}),
    ("POST", "/jobs/job", {"queue": "q", "body": "?", "encoding": "base64"}),
    ("GET", "/jobs/queues", {}),
    ("GET", "/jobs/queue", {"queue": "q"}),
    ("GET", "/jobs", {"queue": "q"}),
    ("GET", "/jobs/job", {"id": "none"}),
    ("GET", "/why/job", {"id": "none"}),
    ("GET", "/jobs/dump", {}),
    ("GET", "/jobs/schedules", {}),
    ("POST", "/jobs/load", {"jobs": []}),
    ("POST", "/jobs/take", {"queue": "q"}),
    ("POST", "/jobs/pause", {"queue": "q"}),
    ("POST", "/jobs/job", {"queue": "q", "body": "x"}),
    ("POST", "/jobs/resume", {"queue": "q"}),
    ("POST", "/jobs/retry", {"queue": "q"}),
    ("DELETE", "/jobs/job", {"id": "none"}),
    ("DELETE", "/jobs/queue", {"queue": "q"}),
    ("GET", "/mappings", {}),
    ("POST", "/mappings/test", {"name": "none"}),
    ("POST", "/mappings/enable", {"name": "none"}),
    ("POST", "/mappings/disable", {"name": "none"}),
    ("GET", "/cluster/members", {}),
    ("POST", "/cluster/join", {"address": "nowhere"}),
    ("POST", "/cluster/leave", {}),
    ("POST", "/cluster/drain", {}),
    ("DELETE", "/cluster/member", {"node": "nobody"}),
    ("GET", "/plugins", {}),
    ("POST", "/plugin/reload", {"name": "mine"}),
    ("POST", "/plugin/shadow", {"name": "mine"}),
    ("GET", "/plugin/shadow", {"name": "mine"}),
    ("POST", "/publish", {"topic": "t", "payload": "x"}),
    ("POST", "/publish", {"topic": "t/#"}),
    ("POST", "/plugin/disable", {"name": "mine"}),
    ("POST", "/plugin/enable", {"name": "mine"}),
    ("GET", "/streams", {}),
    ("GET", "/stream", {"name": "temp"}),
    ("POST", "/stream", {"name": "temp", "filters": ["t/#"], "partitions": 2}),
    ("POST", "/stream", {"name": "temp", "filters": ["t/#"]}),
    ("POST", "/stream", {"name": "No Name", "filters": ["t/#"]}),
    ("POST", "/stream", {"name": "bad", "filters": ["t/#/x"]}),
    ("GET", "/streams", {}),
    ("GET", "/stream", {"name": "temp"}),
    ("POST", "/stream/scrub", {"name": "temp"}),
    ("POST", "/stream/scrub", {"name": "none"}),
    ("GET", "/groups", {}),
    ("GET", "/group", {"group": "none"}),
    ("POST", "/group/reset", {"group": "none", "to": "earliest"}),
    ("DELETE", "/group", {"group": "none"}),
    ("DELETE", "/stream", {"name": "temp"}),
    ("DELETE", "/stream", {"name": "temp"}),
    ("DELETE", "/queue", {"client_id": "me"}),
    ("DELETE", "/retained", {"filter": "r"}),
    ("DELETE", "/session/subscription", {"client_id": "me", "filter": "t"}),
    ("DELETE", "/session", {"client_id": "me"}),
    ("DELETE", "/session", {"client_id": "nobody"}),
]


async def test_answers_are_as_described(local: Site) -> None:
    me = Peer(local.broker.registry(), "me", ("t", 1), clean=False, username="bob")
    me.publish("t", qos=1)
    me.publish("r", retain=True)
    await local.broker.plugins.add("mine", Plugin())
    asked = set()
    async with local.client.get(local.base + "/api/v1/openapi.json") as answer:
        document = await answer.json()
    for method, path, plain in QUESTIONS:
        more: dict[str, Any] = {"json": plain} if method == "POST" else {"params": plain}
        url = local.base + "/api/v1" + path
        async with local.client.request(method, url, **more) as answer:
            described = document["paths"]["/api/v1" + path][method.lower()]["responses"]
            schema = described[str(answer.status)]["content"]["application/json"]["schema"]
            whole = {**schema, "components": document["components"]}
            body = await answer.json()
            assert errors(whole, body) == [], (path, body)
            asked.add((method, path))
    left = {(each.method, each.path) for each in OPERATIONS} - asked
    # One would end this test's own key, the others need nodes (tests/vmq/clustering/raft/test_replicated.py).
    assert left == {
        ("DELETE", "/api-key"),
        ("POST", "/stream/alter"),
        ("POST", "/stream/move"),
        ("POST", "/stream/transfer"),
        ("POST", "/stream/rebalance"),
        ("POST", "/stream/recover"),
        ("POST", "/stream/accept-loss"),
    }


def without_bound(kind: inspect.Type) -> Iterator[str]:
    """The whole numbers in a type that may be of any size."""
    if isinstance(kind, inspect.IntType) and kind.le is None and kind.lt is None:
        yield ""
    for each in getattr(kind, "fields", ()):
        yield from (f".{each.encode_name}{rest}" for rest in without_bound(each.type))
    inner = getattr(kind, "item_type", None), getattr(kind, "type", None)  # of a list, of metadata
    for each in (*getattr(kind, "types", ()), *inner):
        if each is not None:
            yield from without_bound(each)


def test_whole_numbers_are_those_that_the_broker_can_count_with() -> None:
    """One of 2^63 is an OverflowError in the core, which is compiled."""
    found = [
        operation.name + each
        for operation in OPERATIONS
        for each in without_bound(inspect.type_info(operation.parameters))
    ]
    # Goes by the type of the option that it is for.
    assert found == ["set_option.value"]


@pytest.mark.parametrize("value", [2**63, 2**64])
async def test_a_whole_number_that_is_too_large_is_a_mistake(local: Site, value: int) -> None:
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/jobs/job", {"queue": "q", "body": "x", "maxlen": value}),
        ("POST", "/option", {"option": "limits.max_retained_bytes", "value": value}),
        ("POST", "/stream", {"name": "s", "filters": ["a"], "retention_bytes": value}),
        ("POST", "/stream/accept-loss", {"name": "s", "partition": value}),
        ("GET", "/jobs/dump", {"after": value}),
        ("GET", "/sessions", {"limit": value}),
        ("GET", "/sessions", {"offset": value}),
        ("GET", "/retained", {"payload_bytes": value}),
        ("GET", "/why", {"client_id": "me", "topic": "t", "size": value}),
    ]
    for method, path, parameters in asked:
        how = {"json" if method == "POST" else "params": parameters}
        status, answer = await ask(local, method, path, **how)
        assert (status, "accepted" in answer["error"]) == (400, True), (path, answer)
