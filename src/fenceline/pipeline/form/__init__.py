"""What a pipeline compiles to, and how that is read: Conductor's WorkflowDef and TaskDef."""
