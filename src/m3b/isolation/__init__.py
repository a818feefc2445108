"""Keeps apart what nobody has vouched for: the sandbox, the confined reader, and safe handling of foreign files.

- `sandbox` runs code of agents and models;
- `reader` opens foreign files in a confined process;
- `untrusted` has paths, trees, JSON and temporary folders that hostile content cannot turn against m3b.
"""
