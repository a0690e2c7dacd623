"""Who may connect: a file of users and the hashes of their passwords."""

from vmq_passwd.plugin import PasswdConfig, PasswdPlugin

__all__ = ["PasswdConfig", "PasswdPlugin"]
