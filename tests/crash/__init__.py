"""Ends the broker in the middle of its work, again and again, and looks at what became of it.

`session` is a client that keeps strictly to the delivery protocols of MQTT 3.1.1 and sees whether
the broker does, `history` writes down what clients sent and got, `referee` judges it, `campaign`
runs the traffic and stops the broker. None of it uses the broker's own code.
"""
