"""A cluster's durable sessions on one seed: the machines as they are, over wires, disks and clocks that go wrong.

Nothing here depends on the order of hashes. A wire keeps its order, and loses what is under way when it breaks.
"""

from collections import Counter, defaultdict, deque
from itertools import chain
from random import Random
from typing import Any, Final

import msgspec

from tests.simulator.sessions.client import WINDOW, Client, Outgoing, one_by_one
from tests.simulator.sessions.node import STEP, TIMEOUT, WorldNode
from tests.simulator.sessions.row_log import RowLog
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import SessionMessage, SessionStep
from vmq.clustering.slots.placement import spread
from vmq.clustering.slots.words import PUBREL, Dot

SLOTS = 3
#: Steps until everybody has what a split has kept from them.
CLEAR = 40
#: Steps until a copy has heard of a change.
HEARD = 10
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder(SessionMessage)


def pair(x: str, y: str) -> tuple[str, str]:
    return (x, y) if x < y else (y, x)


def new_clients() -> list[Client]:
    """Publishers of both kinds, subscribers, members of a share group, and one that changes its mind."""
    return [
        Client("p", 2),
        Client("q", 1),
        Client("r", 2),
        Client("c", 0, "t/#"),
        Client("d", 0, "t/+"),
        Client("e", 0, "t/p"),
        Client("g", 0, "$share/s/t/#"),
        Client("h", 0, "$share/s/t/#"),
        Client("k", 0, "$share/s/t/#"),
        Client("f", 0, toggles=True),
    ]


class SessionWorld:
    """Some nodes, what is between them, and their clients.

    Args:
        names: of the nodes, a character each; "": three or five.
        hosts: the same of their hosts; "": each has one of its own.
    """

    def __init__(self, seed: int, names: str = "", replicas: int = 2, hosts: str = "") -> None:
        self.random = Random(seed)
        self.now = 0
        self.replicas = replicas
        names = names or ("abc" if seed % 2 else "abcde")
        self.host_of = dict(zip(names, hosts or names, strict=True))
        self.nodes: dict[str, WorldNode] = {}
        self.stores: dict[int, str] = {}
        self.last_store = 0
        self.gone: list[str] = []
        #: Pairs that do not reach each other, and (from, to) of what is held up.
        self.cut: dict[tuple[str, str], None] = {}
        self.stalled: dict[tuple[str, str], None] = {}
        self.paused: dict[str, None] = {}
        self.slow: dict[str, None] = {}
        self.lives: dict[tuple[str, str], int] = {}
        self.last_life = 1
        self.wires: dict[tuple[str, str], deque[bytes]] = {}
        #: Wires whose sender has ended the link, while the receiver was held up: it reads them first.
        self.unread: dict[tuple[str, str], None] = {}
        self.up: dict[int, deque[tuple[Any, ...]]] = {}
        self.down: dict[int, deque[tuple[str, Any]]] = {}
        self.homes: dict[int, str] = {}
        self.by_number: dict[int, Client] = {}
        self.half_open: dict[int, None] = {}
        self.last_number = 0
        self.routes: list[tuple[int, str, str, int, int, list[str]]] = []
        self.filters: list[tuple[str, int]] = []
        #: On their way, by when they arrive; and where members of share groups are connected.
        self.news: list[tuple[int, str, int, str, bool]] = []
        self.presence: dict[tuple[str, int], bool] = {}
        self.bytes: Counter[str] = Counter()
        #: When each message was published first, and whether all nodes were of one mind about who subscribes.
        self.published: dict[str, tuple[int, bool]] = {}
        #: Since when links are whole, and who is down with what it took while it reached nobody.
        self.healed = 0
        self.alone: dict[str, None] = {}
        #: From when to when there were sides, and forks of them.
        self.splits: list[list[int]] = []
        #: When messages of share groups went from one member to another, by what they say.
        self.moved: defaultdict[str, dict[tuple[Dot, int], int]] = defaultdict(dict)
        self.clients = {each.name: each for each in new_clients()}
        for name in names:
            self.nodes[name] = self._new_node(name)
        #: Where what is published at QoS 2 goes, too.
        self.log: RowLog | None = None
        #: Which nodes a client may connect to; a fault may bind it to its side.
        self.bound: dict[str, list[str]] = {}
        self.away: dict[str, None] = {}
        for name in names:
            self.start(name)
        for name in names:
            for slot, stores in enumerate(spread(SLOTS, self.hosts(), replicas)):
                if stores and stores[0] == self.nodes[name].store:
                    self.nodes[name].machines.slots.take_over(slot)

    def _new_node(self, name: str) -> WorldNode:
        self.last_store += 1
        self.stores[self.last_store] = name
        return WorldNode(name, self.host_of[name], self.last_store, SLOTS, self.replicas)

    # Nodes and links

    def hosts(self) -> dict[int, str]:
        return {node.store: node.host for node in self.nodes.values()}

    def start(self, name: str) -> None:
        node = self.nodes[name]
        node.start(self.hosts())
        self.alone.pop(name, None)
        self.paused.pop(name, None)
        for topic_filter, slot in self.filters:
            node.machines.routes.add(topic_filter, slot)
        self._tell_presence(node)
        for other in self.nodes:
            if other != name:
                self.link(name, other)

    def _tell_presence(self, node: WorldNode) -> None:
        for (group, slot), is_there in self.presence.items():
            node.machines.routes.set_presence(group, slot, is_there)

    def are_linked(self, x: str, y: str) -> bool:
        return self.nodes[x].is_up and self.nodes[y].is_up and pair(x, y) not in self.cut

    def link(self, x: str, y: str) -> None:
        """A new link, if they reach each other, and both know that the last one is over."""
        if not self.are_linked(x, y) or (x, y) in self.unread or (y, x) in self.unread:
            return
        self.last_life += 1
        self.lives[pair(x, y)] = self.last_life
        for one, other in ((x, y), (y, x)):
            self.wires[one, other] = deque()
            self.nodes[one].machines.on_link(self.nodes[other].store, self.last_life)

    def break_link(self, x: str, y: str, dead: str = "") -> None:
        """Both ends notice, and what is under way is lost; who is held up notices behind what lies in its sockets."""
        if self.lives.pop(pair(x, y), None) is None:
            return
        for one, other in ((x, y), (y, x)):
            if one in self.paused and one != dead:
                self.unread[other, one] = None
                continue
            self.wires.pop((other, one), None)
            if self.nodes[one].is_up:
                self.nodes[one].machines.on_break(self.nodes[other].store, other == dead)

    def _finish_reading(self, sender: str, name: str) -> None:
        """A node that was held up has read what an ended link had for it."""
        del self.unread[sender, name]
        self.wires.pop((sender, name), None)
        self.nodes[name].machines.on_break(self.nodes[sender].store, False)
        self.link(sender, name)

    def kill(self, name: str, is_silent: bool = False) -> None:
        """The process ends; `is_silent`: its host, so that nobody is told."""
        self.nodes[name].is_up = False
        if not all(each.view.followers for each in self.nodes[name].machines.slots.owners.values()):
            self.alone[name] = None
        for key in [each for each in self.unread if name in each]:
            del self.unread[key]
            self.wires.pop(key, None)
        for other in self.nodes:
            if other == name:
                continue
            if is_silent:
                self.lives.pop(pair(name, other), None)
                self.wires.pop((name, other), None)
                self.wires.pop((other, name), None)
            else:
                self.break_link(name, other, dead=name)
        for number in [each for each, home in self.homes.items() if home == name]:
            self._forget(number)
        for client in self.clients.values():
            if client.number and client.node == name:
                client.number, client.is_ready = 0, False

    def wipe(self, name: str) -> None:
        """Comes back empty, as another store: the members know."""
        self.last_store += 1
        self.stores[self.last_store] = name
        self.nodes[name].wipe(self.last_store)
        for node in self.nodes.values():
            if node.is_up:
                node.machines.here.reach.set_members(self.hosts())

    def cut_off(self, side: list[str], is_noticed: bool) -> None:
        for x in side:
            for y in self.nodes:
                if y not in side:
                    self.cut[pair(x, y)] = None
                    if is_noticed:
                        self.break_link(x, y)

    def heal(self) -> None:
        cut, self.cut = self.cut, {}
        self.stalled = {}
        for x, y in cut:
            self.break_link(x, y)
            self.link(x, y)
        for node in self.nodes.values():
            for topic_filter, slot in self.filters:
                node.machines.routes.add(topic_filter, slot)
            self._tell_presence(node)

    # Clients

    def connect(self, client: Client) -> None:
        names = [
            name
            for name, node in self.nodes.items()
            if node.is_up
            and not node.is_leaving
            and name in self.bound.get(client.name, self.nodes)
        ]
        if not names:
            return
        self.last_number += 1
        number = self.last_number
        client.node = self.random.choice(names)
        client.number, client.is_ready = number, False
        self.homes[number] = client.node
        self.by_number[number] = client
        self.up[number] = deque([("connect", client.name)])
        self.down[number] = deque()

    def disconnect(self, client: Client, is_half_open: bool = False) -> None:
        """The client goes; its front learns it late if the connection is half open."""
        number = client.number
        client.number, client.is_ready = 0, False
        self.down.pop(number, None)
        if is_half_open:
            self.half_open[number] = None
        else:
            self.close(number)

    def close(self, number: int) -> None:
        """The front learns that a client has gone."""
        home = self.homes[number]
        self._forget(number)
        if self.nodes[home].is_up:
            self.nodes[home].machines.front.disconnect(number)
            self.nodes[home].machines.finish()

    def _forget(self, number: int) -> None:
        self.half_open.pop(number, None)
        for each in (self.up, self.down, self.homes):
            each.pop(number, None)

    def publish(self, client: Client) -> None:
        packet = client.free_packet()
        client.out[packet] = each = Outgoing(client.next_text(), False, self.now)
        self.published[each.text] = self.now, self.is_clear()
        self._send(client, packet, each, False)

    def _send(self, client: Client, packet: int, each: Outgoing, is_again: bool) -> None:
        up = self.up[client.number]
        if each.is_released:
            up.append(("step", SessionStep(PUBREL, packet)))
        else:
            up.append(("publish", packet, client.qos, each.text, is_again))

    def _from_client(self, node: WorldNode, number: int, what: tuple[Any, ...]) -> None:
        machines, client = node.machines, self.by_number[number]
        if what[0] == "connect":
            limits = client.limits() if client.number == number else None
            machines.connect(number, client.id, client.toggle.is_clean, limits=limits)
            return
        if what[0] == "step":
            machines.front.step(number, what[1])
        else:
            _, packet, qos, text, is_again = what
            topic = "t/" + client.name
            targets = machines.routes.targets(topic, client.scope)
            payload = text.encode()
            given = topic.encode(), payload, is_again, targets, False, False
            rows = None if self.log is None or qos < 2 else [self.log.reserve(node)]
            machines.front.publish(number, packet, qos, *given, rows)
        machines.finish()

    def _to_client(self, client: Client, kind: str, what: Any) -> None:
        up = self.up.get(client.number)
        if up is None:
            return
        if kind == "present":
            for packet, each in client.on_present(what, self.now):
                self._send(client, packet, each, True)
            if client.topic_filter and not client.is_subscribed:
                up.append(("step", client.subscription()))
            up += [("step", each) for each in client.toggle.on_present(what, self.now)]
        elif kind == "acknowledged":
            packet, qos = what
            up += [("step", each) for each in client.on_acknowledged(packet, qos, self.now)]
        else:
            up += [("step", each) for each in client.on_step(what, self.now)]

    # Time

    def step(self, publish: bool = True) -> None:
        self.now += 1
        r = self.random
        self.is_clear()
        for client in self.clients.values():
            if not client.number and client.name not in self.away and r.random() < 0.15:
                self.connect(client)
            if publish and client.qos and client.is_ready and self.are_subscribed():
                if len(client.out) < WINDOW and r.random() < 0.12:
                    self.publish(client)
            if publish and client.toggles and client.is_ready and r.random() < 0.02:
                self._toggle(client)
        for number in list(self.half_open):
            if self.homes[number] not in self.paused and r.random() < 0.03:
                self.close(number)
        for name, node in self.nodes.items():
            if (
                node.is_up
                and name not in self.paused
                and (name not in self.slow or r.random() < 0.15)
            ):
                node.machines.tick(self.now * STEP + node.skew)
                node.machines.go_on()
                node.write(self.now, r)
        self._spread_routes()
        self._take_effects()
        if self.log is not None:
            self.log.step(self.nodes, self.now)
        self._carry()
        self._take_effects()
        self._note_moves()

    def _note_moves(self) -> None:
        running = [node.machines.slots for node in self.nodes.values() if node.is_up]
        states = [owner.state for slots in running for owner in slots.owners.values()]
        for state in states:
            for dot in chain.from_iterable(state.shared.values()):
                message = state.messages[dot]
                if message.moves:
                    moves = self.moved[message.payload.decode()]
                    moves.setdefault((dot, message.moves), self.now)

    def _toggle(self, client: Client) -> None:
        """Subscribes, or no longer; or comes back without its session, or with a new one."""
        if client.toggle.is_clean or self.random.random() < 0.2:
            client.toggle.is_clean = not client.toggle.is_clean
            self.disconnect(client)
        else:
            self.up[client.number] += [("step", each) for each in client.toggle.next(self.now)]

    def is_clear(self) -> bool:
        """Whether everybody reaches everybody, for a while: what one took alone is known to others then."""
        if self.cut or self.stalled or self.alone:
            self.healed = self.now
        return self.now > self.healed + CLEAR

    def met_a_split(self, first: int, last: int) -> bool:
        """Whether what was under way from when to when may have been so on two sides."""
        return any(begin <= last and first <= end for begin, end in self.splits)

    def moved_as_it_split(self, text: str) -> bool:
        """Whether it went from one member to another when a copy on the other side may not have heard of that."""
        return any(
            begin - HEARD <= at <= begin + TIMEOUT // STEP + HEARD
            for at in self.moved[text].values()
            for begin, _ in self.splits
        )

    def settled(self, first: int, last: int) -> int:
        """When what was under way from when to when had come to all sides of the splits that it met."""
        return max([last, *[end for begin, end in self.splits if begin <= last and first <= end]])

    def are_subscribed(self) -> bool:
        return all(each.has_subscribed for each in self.clients.values() if each.topic_filter)

    def _spread_routes(self) -> None:
        due = [each for each in self.routes if each[0] <= self.now]
        self.routes = [each for each in self.routes if each[0] > self.now]
        for _, name, store, slot, ticket, begun in due:
            node = self.nodes[name]
            if not node.is_up or str(node.machines.here.incarnation) != store:
                continue
            for other in self.nodes:
                if other == name or self.are_linked(name, other):
                    for topic_filter in begun:
                        self.nodes[other].machines.routes.add(topic_filter, slot)
            self.filters += [(each, slot) for each in begun]
            node.machines.announced(slot, ticket)
        told = [each for each in self.news if each[0] <= self.now]
        self.news = [each for each in self.news if each[0] > self.now]
        for _, name, slot, group, is_there in told:
            self.presence[group, slot] = is_there
            for other in self.nodes:
                if other == name or self.are_linked(name, other):
                    self.nodes[other].machines.routes.set_presence(group, slot, is_there)

    def _take_effects(self) -> None:
        for name, node in self.nodes.items():
            if not node.is_up:
                continue
            effects = node.machines.effects
            sent, effects.sent = effects.sent, []
            for store, message in sent:
                self._post(name, self.stores[store], store, message)
            for number in effects.closed:
                self._closed_by_front(number)
            effects.closed.clear()
            for attached in effects.present:
                self._queue(attached.connection, "present", attached.is_present)
            effects.present.clear()
            for number, packet, qos in effects.acknowledged:
                self._queue(number, "acknowledged", (packet, qos))
            effects.acknowledged.clear()
            for number, step in effects.steps:
                for each in one_by_one([step]):
                    self._queue(number, "step", each)
            effects.steps.clear()
            life = str(node.machines.here.incarnation)
            for slot, ticket, begun, _ in effects.routes:
                due = self.now + self.random.randint(1, 4)
                self.routes.append((due, name, life, slot, ticket, begun))
            effects.routes.clear()
            for told in effects.presence:
                self.news.append((self.now + self.random.randint(1, 4), name, *told))
            effects.presence.clear()

    def _post(self, name: str, target: str, store: int, message: NodeMessage) -> None:
        wire = None if (name, target) in self.unread else self.wires.get((name, target))
        if wire is not None and self.nodes[target].store == store:
            raw = _ENCODER.encode(message)
            self.bytes[type(message).__name__] += len(raw)
            wire.append(raw)

    def _queue(self, number: int, kind: str, what: Any) -> None:
        if number in self.down:
            self.down[number].append((kind, what))

    def _closed_by_front(self, number: int) -> None:
        client = self.by_number[number]
        if client.number == number:
            client.number, client.is_ready = 0, False
        self._forget(number)

    def _carry(self) -> None:
        r = self.random
        for key in r.sample(sorted(self.wires), len(self.wires)):
            sender, target = key
            for _ in range(r.choice((0, 1, 2, 4, 12))):
                wire = self.wires.get(key)
                is_read = key in self.unread
                if not wire or (not is_read and (key in self.stalled or pair(*key) in self.cut)):
                    break
                node = self.nodes[target]
                if target in self.paused or (target in self.slow and r.random() < 0.7):
                    break
                node.machines.receive(self.nodes[sender].store, _DECODER.decode(wire.popleft()))
            if key in self.unread and target not in self.paused and not self.wires.get(key):
                self._finish_reading(*key)
        for number in r.sample(sorted(self.up), len(self.up)):
            home = self.homes.get(number)
            for _ in range(r.choice((0, 1, 3))):
                if home is None or home in self.paused or not self.up.get(number):
                    break
                self._from_client(self.nodes[home], number, self.up[number].popleft())
        for number in r.sample(sorted(self.down), len(self.down)):
            for _ in range(r.choice((0, 1, 3))):
                if not self.down.get(number):
                    break
                kind, what = self.down[number].popleft()
                client = self.by_number[number]
                if client.number == number:
                    self._to_client(client, kind, what)
