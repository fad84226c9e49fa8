"""The shadow: other settings of the partition, evaluated beside those in force and never carried out."""
