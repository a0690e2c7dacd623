"""Who may publish and subscribe to what: mosquitto's and VerneMQ's file of rules."""

from vmq_acl.plugin import AclConfig, AclPlugin

__all__ = ["AclConfig", "AclPlugin"]
