-- Whether there is any token, be it expired or revoked.
SELECT EXISTS (SELECT FROM progressor.tokens) AS found
