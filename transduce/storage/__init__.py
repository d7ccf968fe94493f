"""Files and folders that are complete or absent: checkpoints, bundles, and locks on folders."""
