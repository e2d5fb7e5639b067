"""The HTTP API on FastAPI: routes, the OpenAPI document, CORS, and the Kafka REST v2 dialect."""
