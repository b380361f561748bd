"""Trainings on other machines: a trial is sent there, followed, fetched, and removed again.

    endpoint.py   the questions to an endpoint that trains, asked until they are answered
    jobs.py       what was started, on the disk before it is started; swept at the next start
    files.py      what comes back, under the limits of a local program's
    places/       where an endpoint is found or deployed, one file each: http, basilica, modal

docs/other-machines.md has the protocol and a reference endpoint.
"""
