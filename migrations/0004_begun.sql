-- How many bytes of an answer's text a person wrote: its tokens are those of what follows.
ALTER TABLE answers ADD COLUMN begun INTEGER NOT NULL DEFAULT 0 CHECK (begun >= 0);
