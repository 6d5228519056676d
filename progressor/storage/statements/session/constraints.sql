-- Check deferred constraints now: one that fails is the handler's error, and no row of ours is locked yet.
SET CONSTRAINTS ALL IMMEDIATE
