"""What is remembered of other nodes' stores."""

from pathlib import Path

import pytest

from tests.vmq.test_store_model import commit
from vmq.clustering.delivery.peers import forget_name, put_name, stored_names
from vmq.store.opening import open_store
from vmq.store.store import StoreError


def test_it_is_remembered_and_forgotten(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", "os", lambda: None)
    put_name(store, "a", 7)
    put_name(store, "b", (1 << 62) - 1)
    commit(store)
    assert dict(stored_names(store)) == {"a": 7, "b": (1 << 62) - 1}
    forget_name(store, "a")
    commit(store)
    assert list(dict(stored_names(store))) == ["b"]
    store.put(b"nb", b"nonsense")
    commit(store)
    with pytest.raises(StoreError, match="none of another node's store"):
        dict(stored_names(store))
    store.db.close()
