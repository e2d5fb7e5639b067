"""Work that nobody waits for in a call: pure decisions and dumb loops."""
