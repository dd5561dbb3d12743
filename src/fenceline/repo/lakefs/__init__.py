"""A repository on a lakeFS server: the official SDK behind a typed client, and the fence that the server checks."""
