"""History for clients of MQTT: `$replay/FROM[;option=value].../FILTER`."""
