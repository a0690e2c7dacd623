"""Topics shared with other MQTT brokers: what is published here goes there, and the other way round."""

from vmq_bridge.config import BridgeConfig, BridgesConfig, TopicConfig
from vmq_bridge.plugin import BridgePlugin

__all__ = ["BridgeConfig", "BridgePlugin", "BridgesConfig", "TopicConfig"]
