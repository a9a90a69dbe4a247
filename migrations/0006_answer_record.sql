-- How an answer was made is one document, in the form that exports have: a figure more needs
-- no column.
CREATE TABLE records (
	message INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
	record  TEXT    NOT NULL CHECK (json_valid(record)),
	tokens  BLOB    NOT NULL      -- ids, 4 bytes each, little endian; empty while running
) STRICT;

-- SQLite writes 15 digits of a number into a document: 17 are all of it.
INSERT INTO records (message, record, tokens)
SELECT
	message,
	json_object(
		'settings', json(settings),
		'system', system,
		'model', model,
		'model_hash', model_hash,
		'template_hash', template_hash,
		'engine', engine,
		'device', device,
		'path', number_path,
		'cache_type', cache_type,
		'chain', json(chain),
		'seed', seed,
		'context', context_length,
		'prompt_tokens', prompt_tokens,
		'cached_tokens', cached_tokens,
		'completion_tokens', completion_tokens,
		'timings', json_object(
			'queue_us', queue_us,
			'load_us', load_us,
			'prefill_us', prefill_us,
			'decode_us', decode_us,
			'first_us', first_us
		),
		'reason', reason,
		'context_full', json(iif(context_full, 'true', 'false')),
		'stop_string', stop_string,
		'end_prob', json(printf('%!.17g', end_prob)),
		'error', json(error),
		'begun', begun,
		'edited', json(iif(edited, 'true', 'false'))
	),
	tokens
FROM answers;

DROP TABLE answers;
ALTER TABLE records RENAME TO answers;
