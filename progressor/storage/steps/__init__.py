"""Steps of processes: claimed, saved, fused with their request, or ended as zombies."""
