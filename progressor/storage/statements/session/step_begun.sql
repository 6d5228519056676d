-- Let go of the snapshot of step_guards, which its portal would hold until the handler's first statement:
-- as long as it is held, PostgreSQL removes no dead row of any table. A portal ends as the next one begins,
-- and that of SET holds none.
SET LOCAL progressor.begun TO ''
