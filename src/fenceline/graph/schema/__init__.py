"""The schema language of graphs, and what a schema says."""
