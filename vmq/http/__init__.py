"""What the broker says over HTTP."""
