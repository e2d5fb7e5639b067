"""One segment: its file of record batches, its indexes, and the ordered map of all segments."""
