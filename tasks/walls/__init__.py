"""What keeps an untrusted program in. `tasks.sandbox` puts it together.

How it is confined: confine, seccomp, cgroup, and the keeper that does it. Which ways this machine offers: isolation.
What it uses: usage. What is left of it: orphans.
"""
