-- The model that answers a conversation; empty: whichever is loaded.
ALTER TABLE conversations ADD COLUMN model TEXT NOT NULL DEFAULT '';
