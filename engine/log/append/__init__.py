"""Before the lock: what an append may hold, and in which codec it is stored."""
