"""`vmq demo`: a broker, devices and Spark on this machine, on a page with buttons that kill them."""
