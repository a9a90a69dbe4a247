-- Whether the texts of a conversation go to the model as they are, without its chat template.
ALTER TABLE conversations ADD COLUMN raw INTEGER NOT NULL DEFAULT 0 CHECK (raw IN (0, 1));
