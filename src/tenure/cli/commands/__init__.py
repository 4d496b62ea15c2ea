"""The commands, each a function of its name; app.py says which there are, and imports a module when it is needed.

    look      ls, show
    watch     watch
    records   why, history, audit
    release   release
    run       run, elect
    serve     serve
    doctor    doctor
    tune      tune
    tryout    dev, demo

A command parses its arguments, asks the library, and hands the answer to a screen; it returns its exit code.
"""
