-- Begin a transaction whose reads all see the same moment.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY NOT DEFERRABLE
