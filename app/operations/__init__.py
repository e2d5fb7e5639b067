"""What the service does: one function or class for each operation, called by every way in."""
