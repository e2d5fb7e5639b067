"""Authentication and authorization: API keys, JWTs, certificates, scopes, quotas, audit."""
