"""What a log knows beyond its bytes, all of it rebuilt from them: watermarks, epochs, producers."""
