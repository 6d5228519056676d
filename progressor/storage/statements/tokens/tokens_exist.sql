-- Whether there is any token, even an expired or revoked one.
SELECT EXISTS (SELECT FROM progressor.tokens) AS found
