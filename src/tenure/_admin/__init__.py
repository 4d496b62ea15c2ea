"""Operators' side: what they see of the lines of a namespace, and what they do.

In reading order:

    protocol    the verbs that a store may have for operators, and its records
    models      the values that operators see, and how records are stored
    operator    looking, forcing out, looking back: as steps for a driver
    journal     who held what, written down by the holders' clients
"""
