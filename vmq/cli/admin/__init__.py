"""Commands that ask a running broker."""
