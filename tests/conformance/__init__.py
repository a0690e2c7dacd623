"""MQTT 3.1.1 seen from the wire: a test for every normative statement that shows at a server.

A test is named after its statement: `test_mqtt_3_1_2_8_...` shows MQTT-3.1.2-8, and its docstring
says in our words what is shown. `statements.toml` lists all statements, `table.py` writes
docs/conformance.md from both. What the standard leaves open or does not number is in the files
test_expected*.py. The tests speak bytes and use nothing of the broker's own code.
"""
