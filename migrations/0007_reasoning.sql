-- What a model thought before it answered stands beside the text. Until now an answer was one
-- text: <think>, a line break, the thought, a line break, </think>, two line breaks and what
-- was said, with <\/think> for </think> in the thought. The parts are cut as bytes: SQLite's
-- functions for text end at a zero byte.
ALTER TABLE messages ADD COLUMN reasoning TEXT NOT NULL DEFAULT '';
ALTER TABLE progress ADD COLUMN reasoning TEXT NOT NULL DEFAULT '';

DROP TRIGGER messages_index_insert;
DROP TRIGGER messages_index_remove;
DROP TRIGGER messages_index_update;
DROP TRIGGER messages_index_delete;
DROP TABLE message_search;

-- part begun: as much of an answer as a person wrote.
CREATE TABLE thoughts AS
WITH
	whole (message, part, source) AS (
		SELECT m.id, 'message', CAST(m.text AS BLOB)
		FROM messages AS m
		UNION ALL
		SELECT p.message, 'progress', CAST(p.text AS BLOB)
		FROM progress AS p
		UNION ALL
		SELECT a.message, 'begun', substr(CAST(coalesce(p.text, m.text) AS BLOB), 1, json_extract(a.record, '$.begun'))
		FROM answers AS a
		JOIN messages AS m ON m.id = a.message
		LEFT JOIN progress AS p ON p.message = a.message
	),
	opened (message, part, rest) AS (
		SELECT w.message, w.part, substr(w.source, iif(substr(w.source, 8, 1) = x'0a', 9, 8))
		FROM whole AS w
		JOIN messages AS m ON m.id = w.message
		JOIN conversations AS c ON c.seq = m.conversation
		WHERE m.role = 'assistant' AND c.raw = 0 AND substr(w.source, 1, 7) = CAST('<think>' AS BLOB)
	),
	closed (message, part, rest, at) AS (
		SELECT message, part, rest, instr(rest, CAST('</think>' AS BLOB))
		FROM opened
	)
SELECT
	message,
	part,
	CAST(CASE
		WHEN at = 0 THEN rest
		WHEN substr(rest, at - 1, 1) = x'0a' AND at > 1 THEN substr(rest, 1, at - 2)
		ELSE substr(rest, 1, at - 1)
	END AS TEXT) AS thought,
	CAST(CASE
		WHEN at = 0 THEN x''
		WHEN substr(rest, at + 8, 2) = x'0a0a' THEN substr(rest, at + 10)
		ELSE substr(rest, at + 8)
	END AS TEXT) AS said
FROM closed;

UPDATE thoughts
SET thought = replace(replace(replace(replace(replace(replace(replace(replace(replace(thought,
	'<\/think>', '</think>'),
	'<\\/think>', '<\/think>'),
	'<\\\/think>', '<\\/think>'),
	'<\\\\/think>', '<\\\/think>'),
	'<\\\\\/think>', '<\\\\/think>'),
	'<\\\\\\/think>', '<\\\\\/think>'),
	'<\\\\\\\/think>', '<\\\\\\/think>'),
	'<\\\\\\\\/think>', '<\\\\\\\/think>'),
	'<\\\\\\\\\/think>', '<\\\\\\\\/think>');

UPDATE messages
SET text = t.said, reasoning = t.thought
FROM thoughts AS t
WHERE t.part = 'message' AND t.message = messages.id;

UPDATE progress
SET text = t.said, reasoning = t.thought
FROM thoughts AS t
WHERE t.part = 'progress' AND t.message = progress.message;

UPDATE answers
SET record = json_set(record, '$.begun', length(CAST(t.said AS BLOB)), '$.begun_reasoning', length(CAST(t.thought AS BLOB)))
FROM thoughts AS t
WHERE t.part = 'begun' AND t.message = answers.message;

DROP TABLE thoughts;

CREATE VIRTUAL TABLE message_search USING fts4 (
	content="messages", text, reasoning, tokenize=unicode61 "remove_diacritics=2", matchinfo=fts3, order=desc
);
INSERT INTO message_search (message_search) VALUES ('rebuild');

CREATE TRIGGER messages_index_insert AFTER INSERT ON messages BEGIN
	INSERT INTO message_search (docid, text, reasoning) VALUES (new.id, new.text, new.reasoning);
END;
CREATE TRIGGER messages_index_remove BEFORE UPDATE OF text, reasoning ON messages BEGIN
	DELETE FROM message_search WHERE docid = old.id;
END;
CREATE TRIGGER messages_index_update AFTER UPDATE OF text, reasoning ON messages BEGIN
	INSERT INTO message_search (docid, text, reasoning) VALUES (new.id, new.text, new.reasoning);
END;
CREATE TRIGGER messages_index_delete BEFORE DELETE ON messages BEGIN
	DELETE FROM message_search WHERE docid = old.id;
END;
