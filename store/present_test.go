package store

import (
	"database/sql"
	"errors"
	"os"
	"strings"
	"testing"
)

// TestAFileThatIsRemovedWhileItIsOpen removes a file of the database in use: nothing new is
// acknowledged, an answer that runs keeps its end, and a backup has all of it.
func TestAFileThatIsRemovedWhileItIsOpen(t *testing.T) {
	for name, remove := range map[string]func(path string) error{
		"the database":                 os.Remove,
		"the database, by another one": func(path string) error { return errors.Join(os.Rename(path, path+".old"), createFile(path)) },
		"the log":                      func(path string) error { return os.Remove(path + "-wal") },
		"the index of the log":         func(path string) error { return os.Remove(path + "-shm") },
	} {
		t.Run(name, func(t *testing.T) {
			opt := testOptions(t)
			s, err := Open(ctx, opt)
			mustDo(t, err)
			c, _, answer, err := s.Start(ctx, me, Metadata{}, NewMessage{Role: RoleUser, Text: "one"}, NewAnswer{})
			mustDo(t, err)
			mustDo(t, s.Present())
			mustDo(t, remove(opt.Path))
			there := size(opt.Path)

			var missing *MissingError
			if _, _, err := s.Ask(ctx, me, c.ID, NewMessage{Parent: answer.ID, Role: RoleUser, Text: "two"}, NewAnswer{}); !errors.As(err, &missing) {
				t.Fatalf("a question was acknowledged: %v", err)
			}
			if missing.Backup.Number == 0 || !strings.Contains(missing.Error(), "m40-llm restore 1") {
				t.Errorf("it says %q", missing)
			}
			if _, err := s.Backup(ctx); !errors.As(err, &missing) {
				t.Errorf("a backup was made: %v", err)
			}
			if err := s.Present(); !errors.As(err, &missing) {
				t.Errorf("the second time it says %v", err)
			}
			if branch := must[[]Message](t)(s.Branch(ctx, me, c.ID)); len(branch) != 2 {
				t.Errorf("the branch has %d messages", len(branch))
			}
			must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, c.ID, answer.ID, "half", "", nil, nil}}))
			must[Message](t)(s.FinishAnswer(ctx, me, c.ID, answer.ID, Finish{State: Done, Text: "the whole answer"}))
			if !strings.Contains(name, "log") && size(opt.Path) != there {
				t.Error("the file that is there now was written")
			}
			if err := s.Close(); !errors.As(err, &missing) || missing.Backup.Number != 2 {
				t.Fatalf("closing it returned %v", err)
			}

			_ = must[string](t)(Restore(ctx, opt, missing.Backup.Path))
			s = mustOpen(t, opt)
			if branch := must[[]Message](t)(s.Branch(ctx, me, c.ID)); len(branch) != 2 || branch[1].Text != "the whole answer" || branch[1].State != Done {
				t.Errorf("the backup has %+v", branch)
			}
		})
	}
}

func TestADatabaseThatAnotherProgramLocksIsNamed(t *testing.T) {
	opt := testOptions(t)
	s := mustOpen(t, opt)
	_, err := s.writer.db.ExecContext(ctx, "PRAGMA busy_timeout = 1")
	mustDo(t, err)
	other, err := sql.Open("sqlite3", dsn(opt.Path, "_txlock", "immediate"))
	mustDo(t, err)
	defer other.Close()
	tx, err := other.Begin()
	mustDo(t, err)
	_, err = s.CreateConversation(ctx, me, Metadata{})
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Path != opt.Path {
		t.Errorf("got %v", err)
	}
	mustDo(t, tx.Rollback())
	must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{}))
}

func TestRestore_NamesTheBackupThatIsOfAnotherProgram(t *testing.T) {
	opt := testOptions(t)
	mustDo(t, mustOpen(t, opt).Close())
	foreign := opt.Path + ".foreign"
	db, err := sql.Open("sqlite3", dsn(foreign))
	mustDo(t, err)
	_, err = db.Exec("CREATE TABLE t (x); PRAGMA application_id = 5; PRAGMA user_version = 1")
	mustDo(t, errors.Join(err, db.Close()))
	if _, err := Restore(ctx, opt, foreign); err == nil || !strings.Contains(err.Error(), foreign) || strings.Contains(err.Error(), opt.Path+`"`) {
		t.Errorf("got %v", err)
	}
}
