"""The embedded repository: immutable objects and one conditional write, on a disk or an object store."""
