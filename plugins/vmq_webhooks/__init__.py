"""Hooks answered by web servers, in VerneMQ's format."""

from vmq_webhooks.config import EndpointConfig, WebhooksConfig
from vmq_webhooks.plugin import WebhooksPlugin

__all__ = ["EndpointConfig", "WebhooksConfig", "WebhooksPlugin"]
