next_at = CASE
    WHEN r.next_at > b.running_time + b.step THEN b.running_time
    ELSE greatest(r.next_at, b.running_time - b.step * (b.burst - 1))
END + b.step * b.begins
