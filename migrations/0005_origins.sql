-- The conversation that this one was forked from; empty: none. It may be gone.
ALTER TABLE conversations ADD COLUMN origin TEXT NOT NULL DEFAULT '';
-- Whether a person wrote the beginning of an answer.
ALTER TABLE answers ADD COLUMN edited INTEGER NOT NULL DEFAULT 0 CHECK (edited IN (0, 1));
