"""Between HTTP and the log's records: parameters in, answers out, in every format."""
