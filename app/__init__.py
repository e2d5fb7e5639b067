"""The HTTP service: the only place that knows HTTP and the event loop."""
