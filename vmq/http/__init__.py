"""What the broker says over HTTP: metrics, health, status, and the API under /api/v1/."""
