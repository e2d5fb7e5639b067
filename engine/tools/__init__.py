"""Programs that look at a log without running one."""
