"""What runs beside and inside the sandbox: supervisor, reaper and launcher, with the standard library alone.

The folder is put on the path of a bare interpreter (`python -I -S`) as the package `guard`, so its modules import
each other relatively and import nothing else of m3b.
"""
