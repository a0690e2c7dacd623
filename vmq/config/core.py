"""The core's options out of the configuration."""

from vmq.config.options import Config
from vmq.core.context import CoreOptions


def options_of(config: Config, options: CoreOptions | None = None) -> CoreOptions:
    """The core's options out of the configuration; those given, if any, take them over."""
    options = CoreOptions() if options is None else options
    session, queue = config.session, config.queue
    options.check_retain_source = config.auth.check_retain_source
    options.refusal_code = config.auth.refusal_code
    options.max_client_id_size = session.max_client_id_size
    options.max_connect_size = session.max_connect_size
    options.max_packet_size = session.max_packet_size
    options.max_control_packet_size = session.max_control_packet_size
    options.upgrade_outgoing_qos = session.upgrade_outgoing_qos
    options.retry_interval = float(session.retry_interval)
    options.shared_subscription_policy = session.shared_subscription_policy
    cluster = config.cluster
    options.allow_register_during_netsplit = cluster.allow_register_during_netsplit
    options.allow_publish_during_netsplit = cluster.allow_publish_during_netsplit
    options.allow_subscribe_during_netsplit = cluster.allow_subscribe_during_netsplit
    options.allow_unsubscribe_during_netsplit = cluster.allow_unsubscribe_during_netsplit
    options.sessions_are_users = session.owner == "user"
    options.suppress_lwt_on_session_takeover = session.suppress_lwt_on_session_takeover
    options.disconnect_on_unauthorized_publish_v3 = session.disconnect_on_unauthorized_publish_v3
    options.persistent_client_expiration = float(session.persistent_client_expiration_seconds or 0)
    options.max_inflight_messages = queue.max_inflight_messages
    options.max_online_messages = queue.max_online_messages
    options.max_offline_messages = queue.max_offline_messages
    options.max_bytes = queue.max_bytes
    options.max_memory_bytes = queue.max_memory_bytes
    options.max_inflight_bytes = queue.max_inflight_bytes
    options.max_age = float(queue.max_age_seconds or 0)
    options.lifo = queue.queue_type == "lifo"
    options.drop_oldest = queue.drop == "oldest"
    options.max_msgs_per_drain_step = queue.max_msgs_per_drain_step
    options.pause_publisher = queue.overflow == "pause_publisher"
    options.topic_cache = config.network.topic_cache
    options.max_uncommitted_writes = config.store.max_uncommitted_writes
    limits = config.limits
    options.max_message_size = limits.max_message_size
    options.max_message_rate = float(limits.max_message_rate)
    options.max_byte_rate = float(limits.max_byte_rate)
    options.max_subscriptions_per_client = limits.max_subscriptions_per_client
    options.max_subscription_bytes_per_client = limits.max_subscription_bytes_per_client
    options.topic_max_depth = limits.topic_max_depth
    options.topic_max_plus = limits.topic_max_plus
    options.max_retained_messages = limits.max_retained_messages
    options.max_retained_bytes = limits.max_retained_bytes
    options.max_subscription_bytes = limits.max_subscription_bytes
    options.stalled_client_timeout = float(limits.stalled_client_timeout)
    options.max_connections_per_ip = limits.max_connections_per_ip
    options.login_timeout = float(session.login_timeout)
    options.max_login_bytes = limits.max_login_bytes
    options.failed_login_delay = float(limits.failed_login_delay)
    options.flapping_limit = limits.flapping_limit
    options.flapping_window = float(limits.flapping_window)
    options.flapping_ban = float(limits.flapping_ban)
    return options
