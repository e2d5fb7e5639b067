"""What takes segments away, replaces them, or moves the directory."""
