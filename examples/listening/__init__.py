"""People listening to songs: a pipeline from raw events to a report, and the demos that run it."""
