"""One connection: HTTP parsing, body receiver, and the hot operations without ASGI."""
