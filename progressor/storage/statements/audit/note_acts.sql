-- Note acts of operators, in the transaction of the acts, behind them. A repetition after a lost answer finds
-- its entry by act_id. A role that may only pause namespaces sends this too, so it reads no other table.
-- include entries
ON CONFLICT (act_id) DO NOTHING
