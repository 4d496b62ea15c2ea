"""The programs of docs/examples, as their users run them: several processes, on real servers."""
