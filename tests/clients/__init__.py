"""MQTT clients that this project did not write, run as programs against a running broker."""
