-- Links under which a conversation can be read. The link itself is nowhere: token_hash is the
-- SHA-256 of what it ends with.
CREATE TABLE shares (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	conversation INTEGER NOT NULL REFERENCES conversations (seq) ON DELETE CASCADE,
	token_hash   BLOB    NOT NULL UNIQUE CHECK (length(token_hash) = 32),
	first        INTEGER NOT NULL,  -- message that it begins with; 0: the first of the conversation
	last         INTEGER NOT NULL,  -- message that it ends with; 0: it follows the branch that is shown
	system       INTEGER NOT NULL CHECK (system IN (0, 1)),    -- shows the system prompt
	settings     INTEGER NOT NULL CHECK (settings IN (0, 1)),  -- shows how each answer was sampled
	created_at   INTEGER NOT NULL,
	expires_at   INTEGER            -- NULL: when it is ended
) STRICT;

CREATE INDEX shares_conversation ON shares (conversation);
