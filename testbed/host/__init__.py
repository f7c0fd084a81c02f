"""Linux features: processes, control groups, CPU sets, users, namespaces, system calls."""
