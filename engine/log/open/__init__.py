"""From a directory to a log: finish what was interrupted, recover, rebuild."""
