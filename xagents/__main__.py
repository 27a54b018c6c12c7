"""`python -m xagents` is `xagents`."""

from xagents.cli.dispatch import main

if __name__ == '__main__':
    main()
