-- A person may say that neither of two answers is good.
CREATE TABLE votes_new (
	id         INTEGER PRIMARY KEY,
	person     TEXT    NOT NULL REFERENCES people (id) ON DELETE CASCADE,
	first      TEXT    NOT NULL,
	second     TEXT    NOT NULL,
	result     TEXT    NOT NULL CHECK (result IN ('first', 'second', 'tie', 'bad')),
	created_at INTEGER NOT NULL
);

INSERT INTO votes_new SELECT id, person, first, second, result, created_at FROM votes;

DROP TABLE votes;

ALTER TABLE votes_new RENAME TO votes;

CREATE INDEX votes_person ON votes (person, id);
