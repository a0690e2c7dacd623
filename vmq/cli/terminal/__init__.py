"""What all commands share: the console, tables, settings, and options."""
