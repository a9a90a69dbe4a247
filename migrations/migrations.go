// Package migrations contains the migrations of the database schema.
//
// A migration is a file NNNN_name.sql, numbered from 0001 without gaps. It runs in one
// transaction, with foreign keys checked at its end. A merged file must never be edited:
// databases record the hashes of applied migrations, and the store refuses to open one whose
// hashes differ.
package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
)

//go:embed *.sql
var files embed.FS

// Migration is one step of the schema.
type Migration struct {
	Version int    // user_version of a database after it
	Name    string // file name
	SQL     string
	Hash    string // SHA-256 of SQL in hex
}

// All returns the migrations in order.
func All() ([]Migration, error) { return load(files) }

var fileName = regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+\.sql$`)

func load(dir fs.FS) ([]Migration, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("failed to list the migrations: %w", err)
	}
	var all []Migration
	for i, e := range entries { // ReadDir sorts by name
		match := fileName.FindStringSubmatch(e.Name())
		if match == nil {
			return nil, fmt.Errorf("migration %q is not named NNNN_name.sql", e.Name())
		}
		version, err := strconv.Atoi(match[1])
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %q is at position %d; the numbers must rise from 0001 without gaps", e.Name(), i+1)
		}
		sql, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			return nil, fmt.Errorf("failed to read migration %q: %w", e.Name(), err)
		}
		all = append(all, New(version, e.Name(), string(sql)))
	}
	return all, nil
}

// New returns a Migration with the hash of sql.
func New(version int, name, sql string) Migration {
	sum := sha256.Sum256([]byte(sql))
	return Migration{Version: version, Name: name, SQL: sql, Hash: hex.EncodeToString(sum[:])}
}
