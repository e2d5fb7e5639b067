"""The state derived from a log's batches: watermarks, leader epochs, producers."""
