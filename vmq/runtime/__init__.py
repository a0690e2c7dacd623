"""What runs beside the pass: deadlines, draining, monitor, watchdog, bans, audit, metrics and health."""
