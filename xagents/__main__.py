"""Entry point of `python -m xagents`, which is equivalent to the command `xagents`."""

from xagents.cli.dispatch import main

if __name__ == '__main__':
    main()
