"""Signatures of senders: one module for each family of schemes."""
