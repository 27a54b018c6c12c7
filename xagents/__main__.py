"""`python -m xagents` is `xagents`."""

from xagents.cli import main

if __name__ == '__main__':
    main()
