"""The broker's figures as messages: `$SYS/NODE/...`."""

from vmq_systree.plugin import SystreeConfig, SystreePlugin

__all__ = ["SystreeConfig", "SystreePlugin"]
