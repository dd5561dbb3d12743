"""An executable model of the publication protocol; `README.md` says how to read it."""
