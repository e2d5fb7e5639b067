"""The process: uvicorn, TLS, signals, memory, logging, and the guard in front of everything."""
