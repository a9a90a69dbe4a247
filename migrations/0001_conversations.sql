-- Conversations, their messages as a tree, presets, settings, and the search over
-- titles and messages. Times are UTC milliseconds and only shown, never sorted by.

CREATE TABLE conversations (
	seq        INTEGER PRIMARY KEY AUTOINCREMENT,
	id         TEXT    NOT NULL UNIQUE,
	owner      TEXT    NOT NULL CHECK (owner <> ''),
	title      TEXT    NOT NULL,
	folder     TEXT    NOT NULL,
	pinned     INTEGER NOT NULL CHECK (pinned IN (0, 1)),
	archived   INTEGER NOT NULL CHECK (archived IN (0, 1)),
	system     TEXT    NOT NULL,
	settings   TEXT    NOT NULL CHECK (json_valid(settings)),
	leaf       INTEGER,                     -- last message of the branch that is shown
	roots      INTEGER NOT NULL DEFAULT 0,  -- messages without a parent
	activity   INTEGER NOT NULL UNIQUE,     -- rises with every message of any conversation
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	deleted_at INTEGER,                     -- in the trash since
	FOREIGN KEY (seq, leaf) REFERENCES messages (conversation, id)
) STRICT;

CREATE INDEX conversations_listed   ON conversations (owner, archived, pinned, activity)         WHERE deleted_at IS NULL;
CREATE INDEX conversations_foldered ON conversations (owner, archived, folder, pinned, activity) WHERE deleted_at IS NULL;
CREATE INDEX conversations_trashed  ON conversations (owner, pinned, activity)                   WHERE deleted_at IS NOT NULL;
CREATE INDEX conversations_erasable ON conversations (deleted_at)                                WHERE deleted_at IS NOT NULL;

-- Edits and regenerations are siblings: messages of one parent, numbered by version.
CREATE TABLE messages (
	id           INTEGER PRIMARY KEY AUTOINCREMENT,
	conversation INTEGER NOT NULL REFERENCES conversations (seq),
	parent       INTEGER,
	version      INTEGER NOT NULL CHECK (version >= 1),
	children     INTEGER NOT NULL DEFAULT 0,
	chosen       INTEGER,                   -- the child shown last
	role         TEXT    NOT NULL CHECK (role IN ('system', 'user', 'assistant', 'tool')),
	state        TEXT    NOT NULL CHECK (state IN ('done', 'running', 'stopped', 'failed', 'interrupted')),
	text         TEXT    NOT NULL,          -- empty while running: see progress
	created_at   INTEGER NOT NULL,
	UNIQUE (conversation, id),
	UNIQUE (parent, version),
	FOREIGN KEY (conversation, parent) REFERENCES messages (conversation, id)
) STRICT;

CREATE UNIQUE INDEX messages_roots ON messages (conversation, version) WHERE parent IS NULL;

-- How an assistant's message was made.
CREATE TABLE answers (
	message           INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
	settings          TEXT    NOT NULL CHECK (json_valid(settings)),
	system            TEXT    NOT NULL,
	model             TEXT    NOT NULL,
	model_hash        TEXT    NOT NULL,
	template_hash     TEXT    NOT NULL,
	engine            TEXT    NOT NULL,
	device            TEXT    NOT NULL,
	number_path       TEXT    NOT NULL,
	cache_type        TEXT    NOT NULL,
	chain             TEXT    NOT NULL CHECK (json_valid(chain)),
	seed              INTEGER NOT NULL,
	context_length    INTEGER NOT NULL,
	prompt_tokens     INTEGER NOT NULL,
	cached_tokens     INTEGER NOT NULL,
	completion_tokens INTEGER NOT NULL,
	queue_us          INTEGER NOT NULL,
	load_us           INTEGER NOT NULL,
	prefill_us        INTEGER NOT NULL,
	decode_us         INTEGER NOT NULL,
	first_us          INTEGER NOT NULL,
	reason            TEXT    NOT NULL,
	context_full      INTEGER NOT NULL CHECK (context_full IN (0, 1)),
	stop_string       TEXT    NOT NULL,
	end_prob          REAL    NOT NULL,
	error             TEXT    NOT NULL CHECK (json_valid(error)),
	tokens            BLOB    NOT NULL      -- ids, 4 bytes each, little endian; empty while running
) STRICT;

-- What running answers have written so far. It is rewritten many times, which costs
-- neither the receipt beside it nor the search index.
CREATE TABLE progress (
	message INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
	text    TEXT    NOT NULL,
	tokens  BLOB    NOT NULL
) STRICT;

CREATE TABLE presets (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	owner      TEXT    NOT NULL CHECK (owner <> ''),
	name       TEXT    NOT NULL COLLATE NOCASE CHECK (name <> ''),
	system     TEXT    NOT NULL,
	settings   TEXT    NOT NULL CHECK (json_valid(settings)),
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	UNIQUE (owner, name)
) STRICT;

CREATE TABLE settings (
	owner TEXT NOT NULL CHECK (owner <> ''),
	name  TEXT NOT NULL CHECK (name <> ''),
	value TEXT NOT NULL CHECK (json_valid(value)),
	PRIMARY KEY (owner, name)
) STRICT, WITHOUT ROWID;

-- The index holds words, not texts: those it reads from the tables. Newest first,
-- as results are shown.
CREATE VIRTUAL TABLE title_search USING fts4 (
	content="conversations", title, tokenize=unicode61 "remove_diacritics=2", matchinfo=fts3, order=desc
);
CREATE VIRTUAL TABLE message_search USING fts4 (
	content="messages", text, tokenize=unicode61 "remove_diacritics=2", matchinfo=fts3, order=desc
);

CREATE TRIGGER conversations_index_insert AFTER INSERT ON conversations BEGIN
	INSERT INTO title_search (docid, title) VALUES (new.seq, new.title);
END;
CREATE TRIGGER conversations_index_remove BEFORE UPDATE OF title ON conversations BEGIN
	DELETE FROM title_search WHERE docid = old.seq;
END;
CREATE TRIGGER conversations_index_update AFTER UPDATE OF title ON conversations BEGIN
	INSERT INTO title_search (docid, title) VALUES (new.seq, new.title);
END;
CREATE TRIGGER conversations_index_delete BEFORE DELETE ON conversations BEGIN
	DELETE FROM title_search WHERE docid = old.seq;
END;

CREATE TRIGGER messages_index_insert AFTER INSERT ON messages BEGIN
	INSERT INTO message_search (docid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER messages_index_remove BEFORE UPDATE OF text ON messages BEGIN
	DELETE FROM message_search WHERE docid = old.id;
END;
CREATE TRIGGER messages_index_update AFTER UPDATE OF text ON messages BEGIN
	INSERT INTO message_search (docid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER messages_index_delete BEFORE DELETE ON messages BEGIN
	DELETE FROM message_search WHERE docid = old.id;
END;
