from vmq.http.operations import OPERATIONS
from vmq.workers.dispatch import WAYS, Dispatch


def test_it_is_said_of_each_operation_who_does_it() -> None:
    assert WAYS.keys() == {each.name for each in OPERATIONS}


def test_what_is_about_one_session_goes_to_its_owner() -> None:
    sessions = {
        each.name
        for each in OPERATIONS
        if {"client_id", "mountpoint"} <= set(each.parameters.__struct_fields__)
    } - {"publish"}  # whose client has no session
    assert sessions == {
        name for name, way in WAYS.items() if way in (Dispatch.OWNER, Dispatch.OWNER_OR_ANY)
    }
