-- The name of the reader of a shared chat who wrote a message; empty: its owner did, or a model.
ALTER TABLE messages ADD COLUMN author TEXT NOT NULL DEFAULT '';

-- Whether readers of a link can ask its owner to let them write.
ALTER TABLE shares ADD COLUMN requests INTEGER NOT NULL DEFAULT 1 CHECK (requests IN (0, 1));
