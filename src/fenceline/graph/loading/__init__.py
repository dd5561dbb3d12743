"""Loading graphs: files and frames become rows of typed tables, checked together and published once."""
