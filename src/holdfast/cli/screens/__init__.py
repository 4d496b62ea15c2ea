"""What is looked at: tables and sentences at a terminal, plain lines in a pipe, JSON for machines.

paper.py   where it is written: is somebody looking, or is it a pipe; JSON
words.py   spans of time, times of day, and strangers' text made harmless
table.py   columns that fit the terminal
lines.py   lines and their tickets     past.py   audit records and journal entries
"""
