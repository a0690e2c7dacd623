"""The places where plugins are called. Without a plugin a site is None and costs one comparison.

Names and meanings are VerneMQ's. `topic` is text, `client_id` names the subscriber. A plain site
is called for its information. An `auth_` site refuses by raising `Refused`.
"""

from collections.abc import Callable


class Refused(Exception):
    """An auth hook's refusal, with the reason for the log.

    `bad_credentials` makes a refused CONNECT answer code 4 instead of 5.
    """

    def __init__(self, reason: str, bad_credentials: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.bad_credentials = bad_credentials


class Hooks:
    """Every hook's call site.

    `in_publish_path` is True when a hook wants to see each PUBLISH or each delivery: the fast path
    for bursts is closed then. Whoever sets a site calls `resolve()` afterwards.
    """

    def __init__(self) -> None:
        #: (peer, client_id, username, password, clean_session)
        self.auth_on_register: Callable[[str, str, str | None, bytes | None, bool], None] | None = (
            None
        )
        #: (peer, client_id, username)
        self.on_register: Callable[[str, str, str | None], None] | None = None
        #: (username, client_id, qos, topic, payload, retain); also for the will at CONNECT
        self.auth_on_publish: Callable[[str | None, str, int, str, bytes, bool], None] | None = None
        #: the same, after routing
        self.on_publish: Callable[[str | None, str, int, str, bytes, bool], None] | None = None
        #: (username, client_id, [(filter, qos)]) -> granted QoS for each, 128 refuses that one
        self.auth_on_subscribe: (
            Callable[[str | None, str, list[tuple[str, int]]], list[int]] | None
        ) = None
        self.on_subscribe: Callable[[str | None, str, list[tuple[str, int]]], None] | None = None
        #: (username, client_id, filters)
        self.on_unsubscribe: Callable[[str | None, str, list[str]], None] | None = None
        #: (client_id, filters), after the fact, also when a session ends
        self.on_topic_unsubscribed: Callable[[str, list[str]], None] | None = None
        #: (client_id, qos, topic, payload, retain) -> (topic, payload) to deliver, or None
        self.on_deliver: Callable[[str, int, str, bytes, bool], tuple[str, bytes] | None] | None = (
            None
        )
        #: (client_id, qos, topic, payload, retain)
        self.on_offline_message: Callable[[str, int, str, bytes, bool], None] | None = None
        #: (client_id, lazy (topic, qos, payload), reason)
        self.on_message_drop: (
            Callable[[str, Callable[[], tuple[str, int, bytes]], str], None] | None
        ) = None
        self.on_client_wakeup: Callable[[str], None] | None = None
        self.on_client_offline: Callable[[str], None] | None = None
        self.on_client_gone: Callable[[str], None] | None = None
        self.on_session_expired: Callable[[str], None] | None = None
        self.in_publish_path = False

    def resolve(self) -> None:
        """Works out anew which paths are free of hooks."""
        self.in_publish_path = (
            self.auth_on_publish is not None
            or self.on_publish is not None
            or self.on_deliver is not None
        )
