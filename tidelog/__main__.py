"""The command line, as `tidelog` and as `python -m tidelog`."""

from app.cli import main

if __name__ == "__main__":
    main()
