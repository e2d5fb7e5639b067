"""The OpenAPI document: what FastAPI derives, completed with headers, links and problems."""
