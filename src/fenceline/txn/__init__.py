"""Try, Confirm, Cancel: intents, the publish decision, recovery and its audit."""
