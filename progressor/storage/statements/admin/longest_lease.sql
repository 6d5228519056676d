-- The longest lease that any process keeps.
SELECT max(w.lease_age) AS lease_age FROM progressor.workers AS w
