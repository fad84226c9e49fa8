"""The shadow: other settings of the partition, which are evaluated beside the settings in force and never carried out."""
