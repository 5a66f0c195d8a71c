"""Faults at every call that changes a file of a run, and what must hold after each.

    shim.c, points.c   interpose libc (LD_PRELOAD), count the calls, and let one of them fail
    scenarios.py       what is interrupted
    trial.py           a scenario, a fault, a point, a seed
    world.py           the records, and what is asked to be deleted
    stock.py           the runs that trials begin with, and the counterfactual ones
    database.py        the same for ledgers in PostgreSQL
    server.py          forks a process that is stopped (victim.py) and one that looks (verify.py)
    power.py           what a loss of power can leave
    client.py          draws trials, asks the server, sums up
    plants.py          mistakes in s3t that the trials must find

The points are found by running a scenario once and counting; a run whose files the counted calls do not explain fails.
`python -m tests.faults SCENARIO KIND POINT SEED` repeats one trial.
"""
