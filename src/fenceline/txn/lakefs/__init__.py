"""Try, Confirm and recovery on a lakeFS server: a staging branch, its commit, a fenced squash merge."""
