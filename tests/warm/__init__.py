"""Warm processes for tests that are not about isolation.

Starting Python, NumPy, PyTorch and m3b costs seconds, and a whole run starts a dozen processes. Here a server process
imports them once (`zygote.py`) and forks for each command. The commands still run in processes of their own, with their
own working directory, environment and output file; they are not confined. Tests of the sandbox, of the reader and of
attacks use the real backends, and so do tests of signals, terminals and start-up.
"""
