"""`python -m steersman` is the same as `steersman`."""

from steersman.cli import main

if __name__ == "__main__":
    main()
