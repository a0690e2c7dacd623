"""The nodes, as clients of Disque see them: HELLO and CLUSTER."""

from vmq.jobs.nodes_port import NodeSeen
from vmq.jobs.resp.connection import RespConnection
from vmq.jobs.resp.replies import OK, array, bulk, error, number, strings

_NO_ADMIN = "NOPERM this listener has no admin = true"
_LEAVING = b"100"


def nodes(connection: RespConnection) -> bytes:
    """HELLO: version, this node, and of each node its id, its address, and how gladly it takes clients."""
    door = connection.door
    me = [door.node_id, door.host, door.port, _LEAVING if is_leaving(connection) else b"1"]
    found = [strings(me)]
    for node in filter(_takes_clients, _others(connection)):
        priority = _LEAVING if node.is_leaving else b"1"
        found.append(strings([node.node_id, node.address.encode(), b"%d" % node.port, priority]))
    return array([number(1), bulk(door.node_id), *found])


def _others(connection: RespConnection) -> list[NodeSeen]:
    nodes_of = connection.door.control.nodes
    return [] if nodes_of is None else list(nodes_of.others())


def _takes_clients(node: NodeSeen) -> bool:
    """Whether it serves clients of Disque: other workers of a host do not."""
    return node.port > 0


def is_leaving(connection: RespConnection) -> bool:
    """Whether this node is to have no jobs any more."""
    nodes_of = connection.door.control.nodes
    return nodes_of is not None and bool(nodes_of.is_leaving)


def mending(connection: RespConnection) -> int:
    """1 while this node looks for jobs that are on too few hosts, else 0."""
    nodes_of = connection.door.control.nodes
    return 0 if nodes_of is None or nodes_of.replicas.mender.is_over() else 1


def cluster(connection: RespConnection, argv: list[bytes]) -> bytes:
    """CLUSTER NODES | INFO | MYID | MEET host port | FORGET id | LEAVING [yes|no] | RESET."""
    what = argv[1].upper()
    door = connection.door
    if what == b"MYID":
        return bulk(door.node_id)
    if what == b"NODES":
        return bulk(b"".join(_lines(connection)))
    if what == b"INFO":
        return bulk(_info(connection))
    if what == b"LEAVING" and len(argv) == 2:
        return bulk(b"yes" if is_leaving(connection) else b"no")
    if what not in {b"MEET", b"FORGET", b"LEAVING", b"RESET"}:
        return error("ERR CLUSTER knows NODES, INFO, MYID, MEET, FORGET, LEAVING and RESET")
    if not door.admin:
        return error(_NO_ADMIN)
    nodes_of = door.control.nodes
    if nodes_of is None:
        return error("ERR this broker is no node of a cluster: cluster.listen is not set")
    if what == b"MEET" and len(argv) == 4 and argv[3].isdigit():
        flaw = nodes_of.meet(argv[2].decode("utf-8", "replace"), int(argv[3]))
    elif what == b"FORGET" and len(argv) == 3:
        flaw = nodes_of.forget(argv[2])
    elif what == b"LEAVING" and argv[2].lower() in {b"yes", b"no"} and len(argv) == 3:
        flaw = nodes_of.set_leaving(argv[2].lower() == b"yes")
        for client in list(door.clients) if is_leaving(connection) else ():
            client.refuse_waiting("LEAVING this node is leaving the cluster")
    elif what == b"RESET":
        flaw = nodes_of.reset()
    else:
        return error("ERR syntax error")
    return error("ERR " + flaw) if flaw else OK


def _lines(connection: RespConnection) -> list[bytes]:
    """As Disque has them: id, address, flags, when a ping was sent and answered, state."""
    door = connection.door
    flags = b"myself,leaving" if is_leaving(connection) else b"myself"
    lines = [b"%b %b:%b %b 0 0 connected\n" % (door.node_id, door.host, door.port, flags)]
    for node in _others(connection):
        marks = [b"leaving"] if node.is_leaving else []
        marks += [] if node.is_up else [b"fail"]
        values = (node.node_id, node.address.encode(), node.port, b",".join(marks) or b"noflags")
        state = b"connected" if node.is_up else b"disconnected"
        lines.append(b"%b %b:%d %b 0 0 %b\n" % (*values, state))
    return lines


def _info(connection: RespConnection) -> bytes:
    others = _others(connection)
    reachable = 1 + sum(each.is_up for each in others)
    nodes_of = connection.door.control.nodes
    address = "" if nodes_of is None else nodes_of.cluster_address
    lines = [
        "cluster_state:ok",
        f"cluster_known_nodes:{1 + len(others)}",
        f"cluster_reachable_nodes:{reachable}",
        f"cluster_size:{1 + len(others)}",
        f"cluster_address:{address}",
        "",
    ]
    return "\r\n".join(lines).encode()
