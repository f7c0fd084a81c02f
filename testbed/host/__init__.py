"""What Linux offers, once: processes, control groups, CPU sets, users, namespaces, system calls."""
