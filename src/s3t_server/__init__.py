"""HTTP: answers, deletions and status of runs, for programs and people. Needs the extra `serve`.

    settings → server → app → routes → run
                         ↑       ↓
                      callers  batching → pending answers → the client
                               writing → pending texts ↗

A process has its runs open, answers from memory, and never trains.
"""
