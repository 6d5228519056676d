-- States isolation and access itself: where sessions keep no state, no other statement could before it.
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE NOT DEFERRABLE
