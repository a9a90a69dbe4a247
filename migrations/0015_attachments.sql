-- Pictures of messages. A file is stored once, however many messages have it, and goes with the last of them.
CREATE TABLE attachments (
	id         INTEGER PRIMARY KEY AUTOINCREMENT,
	hash       TEXT    NOT NULL UNIQUE CHECK (length(hash) = 64), -- SHA-256 of data, in hexadecimal digits
	type       TEXT    NOT NULL CHECK (type LIKE 'image/%'),
	width      INTEGER NOT NULL CHECK (width > 0),                -- pixels, as the picture is shown
	height     INTEGER NOT NULL CHECK (height > 0),
	bytes      INTEGER NOT NULL CHECK (bytes > 0),                -- of data
	created_at INTEGER NOT NULL,
	data       BLOB    NOT NULL
) STRICT;

CREATE TABLE message_attachments (
	message    INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
	place      INTEGER NOT NULL CHECK (place >= 0),               -- among those of the message
	attachment INTEGER NOT NULL REFERENCES attachments (id),
	PRIMARY KEY (message, place)
) STRICT, WITHOUT ROWID;

CREATE INDEX message_attachments_of ON message_attachments (attachment);

CREATE TRIGGER attachments_unused AFTER DELETE ON message_attachments
WHEN NOT EXISTS (SELECT 1 FROM message_attachments WHERE attachment = old.attachment) BEGIN
	DELETE FROM attachments WHERE id = old.attachment;
END;
