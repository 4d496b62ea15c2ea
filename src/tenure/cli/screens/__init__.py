"""Output: tables and sentences at a terminal, plain lines in a pipe, JSON for machines.

    paper   the place to write to: a terminal that somebody looks at, a pipe, or JSON
    words   spans of time, times of day, and strangers' text made harmless
    table   columns that fit the terminal
    lines   lines and their tickets
    past    audit records and journal entries
    live    the table of `tenure watch`

A screen is given answers of the library, and asks no store for anything.
"""
