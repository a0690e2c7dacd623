"""The configuration: options by section, sources, checks, changes while running, and the reference."""
