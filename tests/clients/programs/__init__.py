"""Programs that drive one MQTT client library each, on orders read from standard input.

They all speak the same lines of JSON (node/program.js too):

- in: `{"call": 7, "client": "a", "op": "open", ...}`; the operations are `open`, `subscribe`,
  `unsubscribe`, `publish` and `close`. A program holds any number of clients, by name.
- out: one answer a call, `{"call": 7, "result": {...}}` or `{"call": 7, "error": "..."}`, and between
  them what happens to a client: `{"client": "a", "event": "message", ...}` or `"event": "closed"`.

An answer to `publish` leaves only when every message is acknowledged as its QoS demands.
Payloads travel as base64.
"""
