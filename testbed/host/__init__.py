"""Linux features: processes, control groups, CPU sets, users, namespaces, system calls.

Here: thin wrappers that know the kernel and no run. Not here: interfaces and qdiscs (``network``),
containers and nodes (``runtimes``), the run folder (``telemetry``).
"""
