"""The guards of a sandboxed command: supervisor, reaper and launcher. They use only the standard library.

A bare interpreter (`python -I -S`) loads this folder as the package `guard`, so its modules import each other
relatively and import nothing else of m3b.
"""
