-- In how much detail a model reads a picture of a message; empty: in full.
ALTER TABLE message_attachments ADD COLUMN detail TEXT NOT NULL DEFAULT '' CHECK (detail IN ('', 'low', 'medium'));
