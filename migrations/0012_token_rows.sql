-- The likeliest tokens at each token of an answer, some dozen tokens in a row. They show how the
-- answer came about; without them it is the same, so the oldest go when there are too many.
CREATE TABLE token_rows (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,      -- rises with the time
	message    INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
	first      INTEGER NOT NULL CHECK (first >= 0),    -- which token of the answer is the first, from 0
	tokens     INTEGER NOT NULL CHECK (tokens > 0),
	bytes      INTEGER NOT NULL CHECK (bytes > 0),     -- of packed
	packed     BLOB    NOT NULL,                       -- package store has the format
	created_at INTEGER NOT NULL,
	UNIQUE (message, first)
) STRICT;
