"""Tools that read or repair the files of a log: dump, verify, repair."""
