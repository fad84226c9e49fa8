"""The copy of a core's state and input for another core: checkpoints, the feed of a leader, and the work of a follower."""
