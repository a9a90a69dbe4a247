-- Passphrases with which people log devices in, as argon2id hashes in the format of its reference
-- implementation; empty: the person has none.
ALTER TABLE people ADD COLUMN passphrase TEXT NOT NULL DEFAULT '';
