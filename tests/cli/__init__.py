"""The command line, run as its user runs it: a program in a pipe and at a terminal, against real stores."""
