"""Jobs for clients of MQTT."""
