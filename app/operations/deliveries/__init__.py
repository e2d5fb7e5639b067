"""Each delivery once: ids in record headers, a bounded memory of them, its rebuild from the log."""
