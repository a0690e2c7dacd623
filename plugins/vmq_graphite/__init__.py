"""The broker's figures for Graphite, in its plaintext protocol."""

from vmq_graphite.plugin import GraphiteConfig, GraphitePlugin

__all__ = ["GraphiteConfig", "GraphitePlugin"]
