"""What holds for every test."""

from __future__ import annotations

import os
import signal
import threading

# Workers and their trainings are more than there are processors: one thread each. Read as torch is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings

# how long one example takes says something of the machine's load, and speed is measured in benchmarks/
settings.register_profile("m3b", deadline=None)
settings.load_profile("m3b")

# A shell ignores Ctrl-C for what it starts in the background, and children inherit that: tests that send it would wait for ever.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
