"""Elections in which the service stands, and what it answers about any election.

In reading order:

    candidates    candidacies of this service (`--elect`), in the background, and again after a loss
    views         who leads, as far as it is known and proven
"""
