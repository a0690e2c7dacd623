"""Commands that are MQTT clients: `vmq pub`, `vmq sub`."""
