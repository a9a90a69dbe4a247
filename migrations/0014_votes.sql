-- Which of two answers people preferred while they did not know by which preset and model each was.
-- first and second are the names of these, as people read them.
CREATE TABLE votes (
	id         INTEGER PRIMARY KEY,
	person     TEXT    NOT NULL REFERENCES people (id) ON DELETE CASCADE,
	first      TEXT    NOT NULL,
	second     TEXT    NOT NULL,
	result     TEXT    NOT NULL CHECK (result IN ('first', 'second', 'tie')),
	created_at INTEGER NOT NULL
);

CREATE INDEX votes_person ON votes (person, id);
