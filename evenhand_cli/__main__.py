"""The entry point of `python -m evenhand_cli`."""

from evenhand_cli.app import main

main()
