"""Run the command line: `python -m seq2see` is the same as `seq2see`."""

from seq2see.cli import main

main()
