-- What a person may use of a day; 0: as much as they like.
ALTER TABLE people ADD COLUMN answers_a_day INTEGER NOT NULL DEFAULT 0 CHECK (answers_a_day >= 0);

ALTER TABLE people ADD COLUMN tokens_a_day INTEGER NOT NULL DEFAULT 0 CHECK (tokens_a_day >= 0);
