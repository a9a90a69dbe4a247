package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mattn/go-sqlite3"

	"m40-llm/migrations"
)

// TestSQLite holds the version: before 3.51.3 a log could lose writes when it was
// reset (sqlite.org/wal.html#walresetbug).
func TestSQLite_HasTheFixOfTheLogReset(t *testing.T) {
	if version, number, _ := sqlite3.Version(); number < 3051003 {
		t.Errorf("SQLite is %s, and must be 3.51.3 or newer", version)
	}
}

func TestOpen_SetsThePragmasOfEveryConnection(t *testing.T) {
	s := newStore(t)
	common := map[string]string{
		"journal_mode": "wal", "synchronous": "2", "busy_timeout": "5000", "foreign_keys": "1", "secure_delete": "1",
		"trusted_schema": "0", "cell_size_check": "1", "temp_store": "2", "journal_size_limit": "67108864", "mmap_size": "0",
	}
	for _, pool := range []struct {
		name        string
		db          *sql.DB
		connections int
		queryOnly   string
	}{{"writer", s.writer.db, 1, "0"}, {"reader", s.readers, readerConnections, "1"}} {
		want := maps.Clone(common)
		want["query_only"] = pool.queryOnly
		var held []*sql.Conn
		for i := range pool.connections {
			c, err := pool.db.Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
			for pragma, value := range want {
				var got string
				if err := c.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&got); err != nil || got != value {
					t.Errorf("%s %d: %s is %q, %v; want %q", pool.name, i, pragma, got, err, value)
				}
			}
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := pool.db.Conn(short); err == nil {
			t.Errorf("the %s pool gave more than %d connections", pool.name, pool.connections)
		}
		for _, c := range held {
			c.Close()
		}
	}
	if _, err := s.readers.Exec(`DELETE FROM conversations`); err == nil {
		t.Error("a reader could write")
	}
}

func TestOpen_KeepsTheFilesPrivate(t *testing.T) {
	opt := testOptions(t)
	opt.Path = filepath.Join(filepath.Dir(opt.Path), "new", "deeper", "chats.db")
	opt.Ballast = 1 << 10
	s := mustOpen(t, opt)
	talk(t, s, "x", "hello", "hi")
	must[Backup](t)(s.Backup(ctx))
	seen := 0
	err := filepath.Walk(filepath.Dir(filepath.Dir(opt.Path)), func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		seen++
		want := os.FileMode(0o600)
		if info.IsDir() {
			want = 0o700
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
		return nil
	})
	if err != nil || seen != 9 { // 3 folders, database, log, its index, lock, ballast, backup
		t.Errorf("%d files and folders, %v", seen, err)
	}

	t.Run("a database that others may read is made private", func(t *testing.T) {
		mustDo(t, s.Close())
		mustDo(t, os.Chmod(opt.Path, 0o644))
		mustDo(t, mustOpen(t, opt).Close())
		info := must[os.FileInfo](t)(os.Stat(opt.Path))
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the mode is %04o", info.Mode().Perm())
		}
	})
	t.Run("a folder in which others may write is refused", func(t *testing.T) {
		for _, mode := range []os.FileMode{0o770, 0o702} {
			mustDo(t, os.Chmod(filepath.Dir(opt.Path), mode))
			if _, err := Open(ctx, opt); err == nil || !strings.Contains(err.Error(), "chmod") {
				t.Errorf("mode %04o: %v", mode, err)
			}
		}
		mustDo(t, os.Chmod(filepath.Dir(opt.Path), 0o700))
	})
}

func TestOpen_TakesAnyPath(t *testing.T) {
	for _, name := range []string{"with space", "50% off?mode=memory", "a#b&c=d", "ünï\"'", "-wal"} {
		t.Run(name, func(t *testing.T) {
			opt := testOptions(t)
			opt.Path = filepath.Join(filepath.Dir(opt.Path), name, name+".db")
			s := mustOpen(t, opt)
			talk(t, s, "x", "hello", "hi")
			must[Backup](t)(s.Backup(ctx))
			mustDo(t, s.Close())
			if _, err := os.Stat(opt.Path); err != nil {
				t.Error(err)
			}
			s = mustOpen(t, opt)
			must[Conversation](t)(s.Conversation(ctx, me, "x"))
		})
	}
	if _, err := Open(ctx, Options{}); err == nil {
		t.Error("opened without a path")
	}
}

func TestOpen_IsForOneAtATime(t *testing.T) {
	opt := testOptions(t)
	s := mustOpen(t, opt)
	_, err := Open(ctx, opt)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatalf("opened twice: %v", err)
	}
	if _, err := Restore(ctx, opt, "anything"); !errors.As(err, &locked) {
		t.Errorf("restored over an open store: %v", err)
	}
	mustDo(t, s.Close())
	if err := s.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := s.Conversation(ctx, me, "x"); !errors.Is(err, ErrClosed) {
		t.Errorf("read after Close: %v", err)
	}
	if err := s.SetSetting(ctx, me, "x", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("wrote after Close: %v", err)
	}
	if _, err := s.Backup(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("backed up after Close: %v", err)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if _, err := os.Stat(opt.Path + suffix); err == nil {
			t.Errorf("Close left %s", suffix)
		}
	}
	mustOpen(t, opt)
}

func TestClose_WaitsForCalls(t *testing.T) {
	s := newStore(t)
	var wg sync.WaitGroup
	saved := make([]int, 4)
	for w := range saved {
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := s.CreateConversation(ctx, me, Metadata{ID: fmt.Sprintf("%d-%d", w, i)})
				if errors.Is(err, ErrClosed) {
					saved[w] = i
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for {
		list, err := s.Conversations(ctx, me, Filter{Limit: 500})
		mustDo(t, err)
		if len(list) >= 20 {
			break
		}
	}
	mustDo(t, s.Close())
	wg.Wait()
	s = mustOpen(t, s.opt)
	total := 0
	for _, n := range saved {
		total += n
	}
	var there int
	mustDo(t, s.readers.QueryRow(`SELECT count(*) FROM conversations`).Scan(&there))
	if there != total {
		t.Errorf("%d conversations, %d were acknowledged", there, total)
	}
}

func TestCancelledCall_ChangesNothing(t *testing.T) {
	s := newStore(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.CreateConversation(gone, me, Metadata{ID: "x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("created with a context that has ended: %v", err)
	}
	if _, err := s.Conversation(ctx, me, "x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
}

// future is what a newer program has: the migrations of today and those given.
func future(t *testing.T, sql ...string) []migrations.Migration {
	t.Helper()
	return must[[]migrations.Migration](t)(futureMigrations(sql...))
}

func futureMigrations(sql ...string) ([]migrations.Migration, error) {
	all, err := migrations.All()
	for _, text := range sql {
		n := len(all) + 1
		all = append(all, migrations.New(n, fmt.Sprintf("%04d_future.sql", n), text))
	}
	return all, err
}

func TestOpen_LeavesANewerDatabaseAlone(t *testing.T) {
	opt := testOptions(t)
	s := mustOpen(t, opt)
	talk(t, s, "x", "hello", "hi")
	mustDo(t, s.Close())
	opt.migrations = future(t, `CREATE TABLE later (x INTEGER) STRICT`, `ALTER TABLE presets ADD COLUMN more TEXT`)
	newer := mustOpen(t, opt)
	must[Message](t)(newer.AddMessage(ctx, me, "x", NewMessage{Role: RoleUser, Text: "more"}))
	backups := must[[]Backup](t)(Backups(newer.opt.Path))
	if len(backups) != 1 || backups[0].Version != len(opt.migrations)-2 {
		t.Fatalf("backups before the migration: %+v", backups)
	}
	mustDo(t, newer.Close())

	check := func(t *testing.T) {
		before := hashes(t, filepath.Dir(opt.Path))
		old := opt
		old.migrations = nil
		_, err := Open(ctx, old)
		var e *NewerError
		if !errors.As(err, &e) {
			t.Fatalf("opened: %v", err)
		}
		if e.Version != len(opt.migrations) || e.Supported != len(opt.migrations)-2 || len(e.Backups) != 1 {
			t.Errorf("the error says %+v", e)
		}
		for _, part := range []string{fmt.Sprint(e.Version), fmt.Sprint(e.Supported), backups[0].Path} {
			if !strings.Contains(e.Error(), part) {
				t.Errorf("%q does not name %s", e, part)
			}
		}
		after := hashes(t, filepath.Dir(opt.Path))
		delete(after, "chats.db-shm") // the index of a log that was left is rebuilt to read it
		delete(before, "chats.db-shm")
		if !maps.Equal(before, after) {
			t.Errorf("the files changed from %v to %v", before, after)
		}
	}
	t.Run("after a clean stop", check)
	t.Run("with a log that a crash has left", func(t *testing.T) {
		crash(t, opt, func(s *Store) {
			must[Message](t)(s.AddMessage(ctx, me, "x", NewMessage{Role: RoleUser, Text: "in the log"}))
		})
		if size(opt.Path+"-wal") == 0 {
			t.Fatal("there is no log")
		}
		check(t)
	})
}

// crash opens a store, runs do, and leaves the folder as if the process had ended
// there: with the log, and with the lock file not emptied.
func crash(t *testing.T, opt Options, do func(s *Store)) {
	t.Helper()
	s := mustOpen(t, opt)
	do(s)
	kept := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", ".lock"} {
		kept[suffix] = must[[]byte](t)(os.ReadFile(opt.Path + suffix))
	}
	mustDo(t, s.Close())
	for suffix, data := range kept {
		mustDo(t, os.WriteFile(opt.Path+suffix, data, 0o600))
	}
}

func TestOpen_MarksAnswersInterrupted(t *testing.T) {
	opt := testOptions(t)
	var saved, unsaved Message
	crash(t, opt, func(s *Store) {
		_, saved = start(t, s, "saved", "hello")
		_, unsaved = start(t, s, "unsaved", "hello")
		ended := must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, "saved", saved.ID, "half an ans", "", []int32{7, 8}, nil}}))
		if len(ended) > 0 {
			t.Errorf("progress of %v was not taken", ended)
		}
		if m := must[Message](t)(s.Message(ctx, me, "saved", saved.ID)); m.State != Running || m.Text != "half an ans" {
			t.Errorf("while it runs: %+v", m)
		}
		if found := must[Found](t)(s.Search(ctx, me, Query{Text: "half"})); len(found.Messages) > 0 {
			t.Errorf("found a running answer")
		}
	})
	s := mustOpen(t, opt)
	if m := must[Message](t)(s.Message(ctx, me, "saved", saved.ID)); m.State != Interrupted || m.Text != "half an ans" || m.Answer.Receipt.Model != "guide" {
		t.Errorf("after the restart: %+v", m)
	}
	if tokens := must[[]int32](t)(s.Tokens(ctx, me, "saved", saved.ID)); !slices.Equal(tokens, []int32{7, 8}) {
		t.Errorf("after the restart its tokens are %v", tokens)
	}
	if m := must[Message](t)(s.Message(ctx, me, "unsaved", unsaved.ID)); m.State != Interrupted || m.Text != "" {
		t.Errorf("after the restart: %+v", m)
	}
	if found := must[Found](t)(s.Search(ctx, me, Query{Text: "half"})); len(found.Messages) != 1 {
		t.Errorf("found %+v", found)
	}
	if _, err := s.FinishAnswer(ctx, me, "saved", saved.ID, Finish{State: Done}); !errors.Is(err, ErrConflict) {
		t.Errorf("finished an interrupted answer: %v", err)
	}
}

func TestOpen_RefusesWhatIsNotItsDatabase(t *testing.T) {
	for _, c := range []struct {
		name    string
		make    func(t *testing.T, path string)
		corrupt bool
	}{
		{"a file of text", func(t *testing.T, path string) {
			mustDo(t, os.WriteFile(path, []byte(strings.Repeat("hello ", 1000)), 0o600))
		}, true},
		{"a file of zeros", func(t *testing.T, path string) { mustDo(t, os.WriteFile(path, make([]byte, 64560), 0o600)) }, true},
		{"the database of another program", func(t *testing.T, path string) {
			db := must[*sql.DB](t)(sql.Open("sqlite3", dsn(path)))
			defer db.Close()
			must[sql.Result](t)(db.Exec(`CREATE TABLE t (x); PRAGMA user_version = 1`))
		}, false},
		{"a database with another first migration", func(t *testing.T, path string) {
			opt := Options{Path: path, Ballast: -1, migrations: future(t)}
			first := opt.migrations[0]
			opt.migrations[0] = migrations.New(1, first.Name, first.SQL+"-- edited")
			mustDo(t, mustOpen(t, opt).Close())
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := testOptions(t)
			c.make(t, opt.Path)
			before := hashes(t, filepath.Dir(opt.Path))
			_, err := Open(ctx, opt)
			var corrupt *CorruptError
			if err == nil || errors.As(err, &corrupt) != c.corrupt {
				t.Errorf("%v, want an error, a *CorruptError: %v", err, c.corrupt)
			}
			if after := hashes(t, filepath.Dir(opt.Path)); !maps.Equal(before, after) {
				t.Errorf("the files changed from %v to %v", before, after)
			}
		})
	}
}

// TestOpen_BitFlips damages a database in one bit. Either Open or a read says so, or
// at most one thing reads differently.
func TestOpen_BitFlips(t *testing.T) {
	opt := testOptions(t)
	s := mustOpen(t, opt)
	for i := range 40 {
		talk(t, s, fmt.Sprintf("c%d", i), fmt.Sprintf("question %d %s", i, strings.Repeat("word ", i)), strings.Repeat(fmt.Sprintf("answer %d ", i), 30))
	}
	backup := must[Backup](t)(s.Backup(ctx))
	mustDo(t, s.Close())
	whole := must[[]byte](t)(os.ReadFile(opt.Path))
	want := contents(t, opt)
	random := rand.New(rand.NewPCG(1, 2))
	refused, failed, same := 0, 0, 0
	for range counts(60, 1000) {
		bit := random.IntN(8 * len(whole))
		damaged := slices.Clone(whole)
		damaged[bit/8] ^= 1 << (bit % 8)
		mustDo(t, os.WriteFile(opt.Path, damaged, 0o600))
		s, err := Open(ctx, opt)
		if err != nil {
			refused++
			var corrupt *CorruptError
			if errors.As(err, &corrupt) && corrupt.Backup != backup.Path {
				t.Errorf("bit %d: the error names the backup %q", bit, corrupt.Backup)
			}
			if after := must[[]byte](t)(os.ReadFile(opt.Path)); !slices.Equal(after, damaged) {
				t.Errorf("bit %d: the refused database was changed", bit)
			}
			continue
		}
		got, err := readAll(s)
		mustDo(t, s.Close())
		if err != nil {
			failed++
			continue
		}
		different := 0
		for key, value := range want {
			if got[key] != value {
				different++
			}
		}
		if different == 0 && len(got) == len(want) {
			same++
		}
		if different > 1 || len(got) < len(want)-1 {
			t.Errorf("bit %d (byte %d of page %d): %d of %d things read differently, and nothing said so", bit, bit/8%4096, bit/8/4096+1, different, len(want))
		}
	}
	t.Logf("%d bytes: %d refused, %d failed to read, %d unharmed", len(whole), refused, failed, same)
	if refused == 0 || same == 0 {
		t.Error("the flips did not hit what they should")
	}
}

func contents(t *testing.T, opt Options) map[string]string {
	t.Helper()
	s := mustOpen(t, opt)
	defer s.Close()
	return must[map[string]string](t)(readAll(s))
}

// readAll reads all conversations of mine, each thing under its own key.
func readAll(s *Store) (map[string]string, error) {
	all := map[string]string{}
	list, err := s.Conversations(ctx, me, Filter{Limit: 500})
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		all["listed "+c.ID] = fmt.Sprintf("%+v", c)
		_, tree, err := tree(s, ctx, me, c.ID)
		if err != nil {
			return nil, err
		}
		for _, m := range tree {
			var made []byte
			if m.Answer != nil {
				if made, err = json.Marshal(m.Answer.JSON()); err != nil {
					return nil, err
				}
				m.Answer = nil
			}
			all[fmt.Sprintf("message %d", m.ID)] = fmt.Sprintf("%+v %s", m, made)
		}
	}
	return all, nil
}

// TestWriters_AreNeverLockedOut has many chats write while others list, search, erase
// and back up.
func TestWriters_AreNeverLockedOut(t *testing.T) {
	s := newStore(t)
	talk(t, s, "seed", "hello", "hi")
	var wg sync.WaitGroup
	do := func(n int, f func(i int) error) {
		wg.Go(func() {
			for i := range n {
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for w := range counts(16, 64) {
		do(counts(5, 100), func(i int) error {
			id := fmt.Sprintf("w%d-%d", w, i)
			_, _, a, err := s.Start(ctx, me, Metadata{ID: id}, NewMessage{Role: RoleUser, Text: "hello"}, NewAnswer{})
			if err != nil {
				return err
			}
			if _, err := s.SaveProgress(ctx, []Progress{{me, id, a.ID, "some words", "", nil, nil}}); err != nil {
				return err
			}
			if _, err := s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Text: "some words more"}); err != nil {
				return err
			}
			return s.DeleteConversation(ctx, me, id)
		})
	}
	do(counts(10, 200), func(int) error { _, err := s.Backup(ctx); return err })
	do(counts(10, 200), func(int) error { _, err := s.EraseDeleted(ctx, fromMillis(1<<52)); return err })
	do(counts(50, 1000), func(int) error { _, err := s.Search(ctx, me, Query{Text: "words"}); return err })
	do(counts(50, 1000), func(int) error { _, err := s.Conversations(ctx, me, Filter{}); return err })
	wg.Wait()
	if detail, err := check(ctx, s.readers); detail != "" || err != nil {
		t.Errorf("the database is damaged: %s %v", detail, err)
	}
	backups := must[[]Backup](t)(Backups(s.opt.Path))
	if len(backups) != maxBackups {
		t.Errorf("%d backups, want %d", len(backups), maxBackups)
	}
}
