"""One command a module, each with a module-level `command`. app.py says which there are."""
