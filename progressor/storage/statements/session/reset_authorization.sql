-- Take back the user that a handler turned to, who has no role of the engine's.
SET LOCAL SESSION AUTHORIZATION DEFAULT
