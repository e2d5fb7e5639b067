"""One module per command, or for a few that belong together; `app.cli` loads it when asked."""
