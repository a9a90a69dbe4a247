-- People. What belongs to one has the person's id as its owner; what there was until now is that
-- of the owner of the server. Codes for new devices are in no table: they live five minutes, in
-- memory.
CREATE TABLE people (
	id         TEXT    PRIMARY KEY CHECK (id <> ''),
	name       TEXT    NOT NULL CHECK (name <> ''),
	name_key   TEXT    NOT NULL UNIQUE,                -- name without its case
	role       TEXT    NOT NULL CHECK (role IN ('owner', 'person')),
	answers    INTEGER NOT NULL CHECK (answers >= 0),  -- that are written at once; 0: as many as there is room for
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX people_owner ON people (role) WHERE role = 'owner';

INSERT INTO people (id, name, name_key, role, answers, created_at)
SELECT 'local', 'Owner', 'owner', 'owner', 0, coalesce(min(created_at), 0)
FROM conversations;

-- Browsers that are logged in. The secret in the cookie is nowhere: token_hash is its SHA-256.
CREATE TABLE devices (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	person     TEXT    NOT NULL REFERENCES people (id) ON DELETE CASCADE,
	token_hash BLOB    NOT NULL UNIQUE CHECK (length(token_hash) = 32),
	key_hash   BLOB    CHECK (length(key_hash) = 32),  -- SHA-256 of the server's key that let it in; NULL: none did
	label      TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	seen_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX devices_person ON devices (person);

CREATE TABLE api_keys (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	person     TEXT    NOT NULL REFERENCES people (id) ON DELETE CASCADE,
	token_hash BLOB    NOT NULL UNIQUE CHECK (length(token_hash) = 32),
	name       TEXT    NOT NULL CHECK (name <> ''),
	created_at INTEGER NOT NULL,
	used_at    INTEGER                                 -- NULL: never
) STRICT;

CREATE INDEX api_keys_person ON api_keys (person);
