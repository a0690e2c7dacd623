"""What is remembered of other nodes' stores."""

from pathlib import Path

import pytest

from tests.vmq.test_store_model import commit
from vmq.clustering.delivery.peers import KnownPeer, forget_known, put_known, stored_known
from vmq.store.opening import open_store
from vmq.store.store import StoreError


def test_it_is_remembered_and_forgotten(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", "os", lambda: None)
    known = KnownPeer(7)
    put_known(store, "a", known)
    put_known(store, "b", KnownPeer((1 << 62) - 1))
    commit(store)
    assert dict(stored_known(store)) == {"a": known, "b": KnownPeer((1 << 62) - 1)}
    forget_known(store, "a")
    commit(store)
    assert list(dict(stored_known(store))) == ["b"]
    store.put(b"nb", b"nonsense")
    commit(store)
    with pytest.raises(StoreError, match="none of another node's store"):
        dict(stored_known(store))
    store.db.close()
