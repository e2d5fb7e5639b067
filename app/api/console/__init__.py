"""The browser console at `/console/`: the files that `console/` is built into."""
