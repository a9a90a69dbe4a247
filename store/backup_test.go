package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"m40-llm/migrations"
)

// TestBackup_UnderLoadRestores backs up while chats write. Each backup restores to
// what it was, and holds all that was acknowledged before it began.
func TestBackup_UnderLoadRestores(t *testing.T) {
	for range counts(1, 20) { // a new store each time: the load makes them grow
		backUpUnderLoad(t)
	}
}

func backUpUnderLoad(t *testing.T) {
	s := newStore(t)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var mu sync.Mutex
	var acknowledged []string
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("w%d-%d", w, i)
				_, _, a, err := s.Start(ctx, me, Metadata{ID: id}, NewMessage{Role: RoleUser, Text: "hello"}, NewAnswer{})
				if err == nil {
					_, err = s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Text: "hello " + id})
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, id)
				mu.Unlock()
			}
		})
	}
	for range 5 {
		mu.Lock()
		before := acknowledged[:len(acknowledged):len(acknowledged)]
		mu.Unlock()
		b := must[Backup](t)(s.Backup(ctx))
		to := testOptions(t)
		if replaced := must[string](t)(Restore(ctx, to, b.Path)); replaced != "" {
			t.Errorf("replaced %q where there was nothing", replaced)
		}
		if got, want := dump(t, to.Path), dump(t, b.Path); got != want {
			t.Fatalf("backup %d restores to\n%s\nwant\n%s", b.Number, got, want)
		}
		restored := mustOpen(t, to)
		for _, id := range before {
			if branch := must[[]Message](t)(restored.Branch(ctx, me, id)); len(branch) != 2 || branch[1].Text != "hello "+id {
				t.Fatalf("backup %d has %+v of %s", b.Number, branch, id)
			}
		}
		mustDo(t, restored.Close())
	}
	close(stop)
	writers.Wait()
	if len(acknowledged) == 0 {
		t.Error("there was no load")
	}
	b := must[Backup](t)(s.Backup(ctx))
	if got, want := dump(t, b.Path), dump(t, s.opt.Path); got != want {
		t.Errorf("a backup at rest is\n%s\nwant\n%s", got, want)
	}
}

func TestBackup_KeepsTheNewest(t *testing.T) {
	s := newStore(t)
	for range maxBackups + 2 {
		must[Backup](t)(s.Backup(ctx))
	}
	backups := must[[]Backup](t)(Backups(s.opt.Path))
	if len(backups) != maxBackups || backups[0].Number != maxBackups+2 || backups[maxBackups-1].Number != 3 {
		t.Errorf("kept %+v", backups)
	}
	latest := len(must[[]migrations.Migration](t)(migrations.All()))
	for _, b := range backups {
		if b.Version != latest || b.Size == 0 || b.Made.IsZero() {
			t.Errorf("backup %+v", b)
		}
	}
	mustDo(t, os.WriteFile(filepath.Join(backupDir(s.opt.Path), "my notes.txt"), nil, 0o600))
	mustDo(t, os.WriteFile(filepath.Join(backupDir(s.opt.Path), "unfinished"), []byte("of a kill"), 0o600))
	must[Backup](t)(s.Backup(ctx))
	entries := must[[]os.DirEntry](t)(os.ReadDir(backupDir(s.opt.Path)))
	if len(entries) != maxBackups+1 {
		t.Errorf("the folder holds %v", entries)
	}
}

// A day is a few milliseconds here: what counts is that each backup waits for the one
// before it to be old, and that the loop ends.
func TestKeepBackups_BacksUpWhenTheNewestIsOld(t *testing.T) {
	s := newStore(t)
	talk(t, s, "x", "hello", "hi")
	within, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.KeepBackups(within, 20*time.Millisecond)
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if backups := must[[]Backup](t)(Backups(s.opt.Path)); len(backups) > 0 && backups[0].Number >= 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("there are no three backups after a minute")
		}
	}
	cancel()
	<-ended

	newest := must[[]Backup](t)(Backups(s.opt.Path))[0]
	for _, c := range []struct {
		name string
		age  time.Duration
		want time.Duration
	}{
		{"a new one does for the whole time", 0, 24 * time.Hour},
		{"an older one for the rest of it", 18 * time.Hour, 6 * time.Hour},
		{"an old one is due", 30 * time.Hour, -6 * time.Hour},
		{"one from the future does no longer than a new one", -30 * time.Hour, 24 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.opt.Now = func() time.Time { return newest.Made.Add(c.age) }
			if got := s.untilBackup(24 * time.Hour); got != c.want {
				t.Errorf("the next is due in %v, want %v", got, c.want)
			}
		})
	}
}

func TestRestore_ReplacesADamagedDatabase(t *testing.T) {
	opt := testOptions(t)
	s := mustOpen(t, opt)
	talk(t, s, "x", "hello", "hi")
	b := must[Backup](t)(s.Backup(ctx))
	talk(t, s, "later", "hello", "hi")
	mustDo(t, s.Close())
	whole := must[[]byte](t)(os.ReadFile(opt.Path))
	damaged := append([]byte{}, whole...)
	copy(damaged[4096:], strings.Repeat("damage", 1000))
	mustDo(t, os.WriteFile(opt.Path, damaged, 0o600))
	_, err := Open(ctx, opt)
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Backup != b.Path || !strings.Contains(err.Error(), b.Path) {
		t.Fatalf("opened: %v", err)
	}
	t.Run("a crash is not forgotten by a start that fails", func(t *testing.T) {
		mustDo(t, os.WriteFile(opt.Path+".lock", []byte("1\n"), 0o600))
		for range 2 {
			if _, err := Open(ctx, opt); !errors.As(err, &corrupt) {
				t.Fatalf("opened: %v", err)
			}
			if _, err := Restore(ctx, opt, opt.Path); err == nil {
				t.Fatal("restored from the damaged database")
			}
			if size(opt.Path+".lock") == 0 {
				t.Fatal("the lock file says that the last stop was clean")
			}
		}
	})
	for range 2 { // the second time there is something to keep as well
		replaced := must[string](t)(Restore(ctx, opt, b.Path))
		if replaced == "" || size(replaced) == 0 {
			t.Fatalf("the old database was kept as %q", replaced)
		}
	}
	if kept := must[[]byte](t)(os.ReadFile(opt.Path + ".replaced-1")); string(kept) != string(damaged) {
		t.Error("the damaged database was not kept as it was")
	}
	s = mustOpen(t, opt)
	must[Conversation](t)(s.Conversation(ctx, me, "x"))
	if _, err := s.Conversation(ctx, me, "later"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the restored database is not the backup: %v", err)
	}
	mustDo(t, s.Close())

	t.Run("only by a backup that is whole", func(t *testing.T) {
		folder := privateDir(t)
		for name, data := range map[string][]byte{"damaged": damaged, "text": []byte("hello"), "empty": nil, "cut": whole[:len(whole)/2]} {
			path := filepath.Join(folder, name)
			mustDo(t, os.WriteFile(path, data, 0o600))
			if _, err := Restore(ctx, opt, path); err == nil {
				t.Errorf("restored a file that is %s", name)
			}
		}
		if _, err := Restore(ctx, opt, filepath.Join(folder, "missing")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("restored a missing file: %v", err)
		}
		mustDo(t, mustOpen(t, opt).Close())
	})
}

// TestErase greps the raw files for words that were erased.
func TestErase_LeavesNoTrace(t *testing.T) {
	s := newStore(t)
	random := []string{"xylophonequartz", "jazzywaltzing", "quizzicalphlox", "vexedfjordnymph"}
	secret := strings.Join(random, " ")
	for i := range 30 {
		talk(t, s, fmt.Sprint("before", i), "plain words before", strings.Repeat("plain answer before ", 40))
	}
	hide := func(id string) {
		_, _, a, err := s.Start(ctx, me, Metadata{ID: id, Title: secret, System: secret, Placement: Placement{Folder: secret}},
			NewMessage{Role: RoleUser, Text: secret}, NewAnswer{Answer: Answer{System: secret}})
		mustDo(t, err)
		for i := range 10 {
			must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, id, a.ID, strings.Repeat(secret+" ", 100*(i+1)), "", nil, nil}}))
		}
		must[Message](t)(s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Text: strings.Repeat(secret+" ", 2000), Answer: Answer{System: secret}}))
	}
	hide("trashed")
	hide("at-once")
	hide("kept")
	for i := range 30 {
		talk(t, s, fmt.Sprint("after", i), "plain words after", strings.Repeat("plain answer after ", 40))
	}
	words := func() (found []string) {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			data := must[[]byte](t)(os.ReadFile(s.opt.Path + suffix))
			for _, word := range random {
				if strings.Contains(string(data), word[4:]) { // the index leaves out what a word shares with the one before
					found = append(found, word+" in "+suffix)
				}
			}
		}
		return found
	}
	if len(words()) == 0 {
		t.Fatal("the words are not in the files to begin with")
	}
	mustDo(t, s.DeleteConversation(ctx, me, "trashed"))
	mustDo(t, s.DeleteConversation(ctx, me, "kept"))
	if n := must[int](t)(s.EraseDeleted(ctx, s.opt.Now().Add(-1e9))); n != 0 {
		t.Errorf("%d conversations were erased before their time", n)
	}
	mustDo(t, s.RestoreConversation(ctx, me, "kept"))
	if n := must[int](t)(s.EraseDeleted(ctx, s.opt.Now().Add(1e9))); n != 1 {
		t.Errorf("%d conversations were erased, want 1", n)
	}
	if branch := must[[]Message](t)(s.Branch(ctx, me, "kept")); len(branch) != 2 {
		t.Errorf("what was taken out of the trash has %d messages", len(branch))
	}
	mustDo(t, s.Erase(ctx, me, "at-once"))
	mustDo(t, s.Erase(ctx, me, "kept"))
	if err := s.Erase(ctx, me, "kept"); !errors.Is(err, ErrNotFound) {
		t.Errorf("erased twice: %v", err)
	}
	if found := words(); len(found) > 0 {
		t.Errorf("still there: %v", found)
	}
	list := must[[]Conversation](t)(s.Conversations(ctx, me, Filter{Limit: 500}))
	if found := must[Found](t)(s.Search(ctx, me, Query{Text: "plain", Limit: 100})); len(list) != 60 || len(found.Messages) != 100 {
		t.Errorf("of the others %d conversations are listed and %d messages found", len(list), len(found.Messages))
	}
	if detail, err := check(ctx, s.readers); detail != "" || err != nil {
		t.Errorf("the database is damaged: %s %v", detail, err)
	}
}
