"""The feed, as readers outside of the processes see it."""
