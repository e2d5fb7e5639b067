"""What readers do, without the lock: read, look up, list, split, download."""
