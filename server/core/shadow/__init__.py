"""The shadow: other settings of a partition, evaluated at the same time as the settings in force, without effect on any pod."""
