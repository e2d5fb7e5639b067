"""Who asks, what they may do, and how much of it: API keys, JWTs, certificates, scopes, quotas."""
