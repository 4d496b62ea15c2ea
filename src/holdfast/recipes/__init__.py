"""Recipes: each is one pure rule over the line. None knows a store, a thread or an event loop."""
