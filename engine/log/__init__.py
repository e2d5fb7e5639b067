"""One log: the order of effects under one lock, and the pure steps around it."""
