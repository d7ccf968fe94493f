"""Files and folders that are complete or not there."""
