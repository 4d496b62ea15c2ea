"""What `holdfast tune` measures, and what it makes of it. Knows no click and no screen.

samples.py   durations, their quantiles and their distribution
pauses.py    how late a thread and an event loop are woken
renewals.py  how long the store takes to renew a lease, and which TTLs it grants
advice.py    the rule: from these numbers to a TTL and a renewal interval
"""
