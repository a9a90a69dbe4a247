package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"m40-llm/migrations"
)

// applicationID marks the file as ours ("M40L").
const applicationID = 0x4d34304c

// checkedSize is up to which size a database is checked at each start; above it only
// after a crash. The check reads everything, about 200 MiB in a second.
const checkedSize = 32 << 20

// inspect returns the version of the database, 0 if there is none yet, and fails if
// it must not be touched. It changes nothing, not even by recovering the log.
func (s *Store) inspect(ctx context.Context) (version int, err error) {
	info, err := os.Stat(s.opt.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 && size(s.opt.Path+"-wal") == 0 {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("failed to look at the database: %w", err)
	}
	db := s.pool(inspectorDSN(s.opt.Path), 1)
	defer db.Close()
	if version, err = s.identify(ctx, db, s.opt.Path); err != nil {
		return 0, err
	}
	if s.lock.unclean || info.Size() <= checkedSize {
		detail, err := check(ctx, db)
		if err != nil {
			return 0, err
		}
		if detail != "" {
			return 0, &CorruptError{Path: s.opt.Path, Detail: detail, Backup: newestBackup(s.opt.Path)}
		}
	}
	return version, nil
}

// inspectorDSN opens without a trace. A log that a crash has left is read where it
// is; a rollback journal, which there is only of a backup that was put in place and
// not opened to the end, must be rolled back to read anything.
func inspectorDSN(path string) string {
	switch {
	case size(path+"-journal") > 0:
		return dsn(path)
	case size(path+"-wal") > 0:
		return dsn(path, "mode", "ro", "_query_only", "on")
	}
	return dsn(path, "immutable", "1", "_query_only", "on")
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// identify returns the version of the database in the file path, if this program may use it.
func (s *Store) identify(ctx context.Context, db *sql.DB, path string) (version int, err error) {
	var id, tables int
	err = db.QueryRowContext(ctx, `
		SELECT
			(SELECT application_id FROM pragma_application_id),
			(SELECT user_version FROM pragma_user_version),
			(SELECT count(*) FROM sqlite_schema)`).Scan(&id, &version, &tables)
	if err != nil {
		return 0, fmt.Errorf("failed to read the database: %w", err)
	}
	if tables == 0 && version == 0 {
		return 0, nil
	}
	if id != applicationID {
		return 0, fmt.Errorf("%q is a database of another program (application id %#x); use another file", path, id)
	}
	if known := len(s.opt.migrations); version > known {
		backups, err := Backups(s.opt.Path)
		if err != nil {
			return 0, err
		}
		return 0, &NewerError{Path: path, Version: version, Supported: known, Backups: backups}
	}
	return version, s.checkApplied(ctx, db, path, version)
}

// checkApplied compares the migrations that the database was given with those that
// this program has.
func (s *Store) checkApplied(ctx context.Context, db *sql.DB, path string, version int) error {
	rows, err := db.QueryContext(ctx, `
		SELECT
			version,
			name,
			hash
		FROM schema_migrations
		ORDER BY version`)
	if err != nil {
		return fmt.Errorf("failed to read which migrations the database has: %w", err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var m migrations.Migration
		if err := rows.Scan(&m.Version, &m.Name, &m.Hash); err != nil {
			return err
		}
		n++
		if m.Version != n || n > version || m.Hash != s.opt.migrations[n-1].Hash {
			return fmt.Errorf("the database %q was given another migration %d (%q) than this program has; use the program that made it",
				path, m.Version, m.Name)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if n != version {
		return fmt.Errorf("the database %q has version %d, but records %d migrations", path, version, n)
	}
	return nil
}

// check returns what SQLite finds wrong with the file, or nothing. The quick check of
// SQLite would not notice an index out of order, which hides rows, and takes as long:
// most of the time goes to the search index.
func check(ctx context.Context, db *sql.DB) (detail string, err error) {
	rows, err := db.QueryContext(ctx, "PRAGMA integrity_check(10)")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return "", err
		}
		if line != "ok" {
			found = append(found, line)
		}
	}
	return strings.Join(found, "; "), rows.Err()
}

// migrate brings the database from version found to that of this program, after a
// backup if there is something to lose. A migration is applied with all its statements
// or not at all, so a process that dies here starts again where it was.
func (s *Store) migrate(ctx context.Context, found int) error {
	steps := s.opt.migrations[found:]
	if len(steps) == 0 {
		return nil
	}
	if found > 0 {
		b, err := s.backup(ctx)
		if err != nil {
			return fmt.Errorf("failed to back up the database before its migration: %w", err)
		}
		s.opt.Log.Info("backed up the database before its migration", "backup", b.Path)
	}
	// Foreign keys are off, so that a step can rebuild a table, and checked at its end.
	db := s.pool(dsn(s.opt.Path, "_journal_mode", "WAL", "_synchronous", "FULL", "_busy_timeout", "5000",
		"_txlock", "immediate", "_foreign_keys", "off", "_secure_delete", "on"), 1)
	defer db.Close()
	for _, m := range steps {
		err := transact(ctx, db, func(tx *sql.Tx) error { return s.apply(ctx, tx, m) })
		if err != nil {
			return fmt.Errorf("failed to apply migration %q: %w", m.Name, err)
		}
		s.opt.Log.Info("migrated the database", "migration", m.Name, "version", m.Version)
	}
	return db.Close()
}

func (s *Store) apply(ctx context.Context, tx *sql.Tx, m migrations.Migration) error {
	_, err := tx.ExecContext(ctx, `
		CREATE TABLE IF NOT EXISTS schema_migrations (
			version    INTEGER PRIMARY KEY,
			name       TEXT    NOT NULL,
			hash       TEXT    NOT NULL,
			applied_at INTEGER NOT NULL
		) STRICT`)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, m.SQL); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO schema_migrations (version, name, hash, applied_at)
		VALUES (?, ?, ?, ?)`,
		m.Version, m.Name, m.Hash, s.now())
	if err != nil {
		return err
	}
	var table string
	err = tx.QueryRowContext(ctx, `SELECT "table" FROM pragma_foreign_key_check LIMIT 1`).Scan(&table)
	if err == nil {
		return fmt.Errorf("it leaves rows in table %q that refer to nothing", table)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	// Pragmas take no bound arguments.
	_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, m.Version))
	return err
}
