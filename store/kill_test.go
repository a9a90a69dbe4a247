package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
)

// helper is this test binary in the role of a server that will be killed.
func helper(t *testing.T, role, path string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "STORE_HELPER="+role, "STORE_PATH="+path)...)
	cmd.Stderr = os.Stderr
	return cmd
}

// playHolder opens the store and keeps it until its input ends.
func playHolder(path string) error {
	s, err := Open(ctx, Options{Path: path, Ballast: -1})
	if err != nil {
		return err
	}
	fmt.Println("open")
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	return s.Close()
}

func TestOpen_NamesTheProcessThatHasTheStore(t *testing.T) {
	opt := testOptions(t)
	holder := helper(t, "hold", opt.Path)
	input := must[io.WriteCloser](t)(holder.StdinPipe())
	output := must[io.ReadCloser](t)(holder.StdoutPipe())
	mustDo(t, holder.Start())
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_, err := Open(ctx, opt)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != holder.Process.Pid {
		t.Errorf("opened beside process %d: %v", holder.Process.Pid, err)
	}
	if !strings.Contains(fmt.Sprint(err), strconv.Itoa(holder.Process.Pid)) {
		t.Errorf("%q does not name the process", err)
	}
	mustDo(t, holder.Process.Kill())
	input.Close()
	if err := holder.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	s := mustOpen(t, opt)
	if !s.lock.unclean {
		t.Error("the kill was not noticed")
	}
	mustDo(t, s.Close())
	if s = mustOpen(t, opt); s.lock.unclean {
		t.Error("a clean stop was taken for a kill")
	}
}

// answerText is what the answer in a conversation would be when it is whole.
func answerText(conversation string) string {
	return strings.Repeat("words of "+conversation+" ", 40)
}

const steps = 8 // of an answer's progress

// playChats has four chats write, saving as a server does, and says on its output
// what was acknowledged: after the call returned, so a line can be missing but never
// wrong.
func playChats(path string) error {
	s, err := Open(ctx, Options{Path: path, Ballast: -1})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	failed := make(chan error, 5)
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				if err := playChat(s, fmt.Sprintf("r%s-w%d-%d", os.Getenv("STORE_RUN"), w, i)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Go(func() {
		for {
			if _, err := s.Backup(ctx); err != nil {
				failed <- err
				return
			}
		}
	})
	return <-failed // never, until the kill
}

func playChat(s *Store, id string) error {
	say := func(what string, n int) error {
		_, err := os.Stdout.WriteString(fmt.Sprintf("%s %s %d\n", id, what, n)) // one write: lines of chats do not mix
		return err
	}
	whole := answerText(id)
	_, _, a, err := s.Start(ctx, me, Metadata{ID: id, Title: id}, NewMessage{Role: RoleUser, Text: "question " + id}, NewAnswer{})
	if err := errors.Join(err, say("asked", 0)); err != nil {
		return err
	}
	for step := 1; step <= steps; step++ {
		n := len(whole) * step / steps
		if _, err := s.SaveProgress(ctx, []Progress{{me, id, a.ID, whole[:n], "", []int32{int32(n)}, nil}}); err != nil {
			return err
		}
		if err := say("saved", n); err != nil {
			return err
		}
	}
	if _, err := s.FinishAnswer(ctx, me, id, a.ID, Finish{State: Done, Text: whole}); err != nil {
		return err
	}
	return say("done", len(whole))
}

// TestKill_LosesNothingAcknowledged kills a server with kill -9 while four chats
// stream and a backup runs, and starts it again on what is left.
func TestKill_LosesNothingAcknowledged(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range counts(1, 50) { // a new store each time: the chats make them grow
		killTenTimes(t, random)
	}
}

func killTenTimes(t *testing.T, random *rand.Rand) {
	t.Helper()
	opt := testOptions(t)
	type fate struct {
		saved int
		done  bool
	}
	acknowledged := map[string]fate{}
	lines, interrupted := 0, 0
	for run := range 10 {
		server := helper(t, "chat", opt.Path, fmt.Sprint("STORE_RUN=", run))
		output := must[io.ReadCloser](t)(server.StdoutPipe())
		mustDo(t, server.Start())
		until := 1 + random.IntN(150)
		reader := bufio.NewReader(output)
		for n := 1; ; n++ {
			line, err := reader.ReadString('\n')
			if err != nil {
				break // a line without its end was not said
			}
			var id, what string
			var saved int
			if _, err := fmt.Sscan(line, &id, &what, &saved); err != nil {
				t.Fatalf("the server said %q", line)
			}
			acknowledged[id] = fate{saved, what == "done"}
			lines++
			if n == until {
				time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond) // any moment of the calls that run
				mustDo(t, server.Process.Kill())
			}
		}
		var exit *exec.ExitError
		if err := server.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the server ended by itself: %v", err)
		}
		s := mustOpen(t, opt) // checks the database
		for id, want := range acknowledged {
			branch, err := s.Branch(ctx, me, id)
			if err != nil || len(branch) != 2 || branch[0].Text != "question "+id {
				t.Fatalf("run %d: %s was acknowledged, and reads %+v, %v", run, id, branch, err)
			}
			answer := branch[1]
			switch {
			case !strings.HasPrefix(answerText(id), answer.Text) || len(answer.Text) < want.saved:
				t.Fatalf("run %d: %d bytes of %s were acknowledged, and it reads %q", run, want.saved, id, answer.Text)
			case want.done && answer.State != Done:
				t.Fatalf("run %d: %s was done, and is %s", run, id, answer.State)
			case answer.State == Interrupted:
				interrupted++
				tokens := must[[]int32](t)(s.Tokens(ctx, me, id, answer.ID))
				if len(answer.Text) > 0 && !slices.Equal(tokens, []int32{int32(len(answer.Text))}) {
					t.Fatalf("run %d: %s has %d bytes of text and the tokens %v", run, id, len(answer.Text), tokens)
				}
			case answer.State != Done || answer.Text != answerText(id):
				t.Fatalf("run %d: %s is %+v", run, id, answer)
			}
		}
		mustDo(t, s.Close())
	}
	t.Logf("%d acknowledged writes, %d chats read interrupted", lines, interrupted)
	if interrupted == 0 {
		t.Error("no kill hit a running answer")
	}
}

// later are the migrations of a newer program: a new table, a table rebuilt, and new
// values in old rows.
var later = []string{
	`CREATE TABLE tags (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
	 INSERT INTO tags (name) VALUES ('a'), ('b'), ('c');`,
	`CREATE TABLE presets_new (
		id         INTEGER PRIMARY KEY AUTOINCREMENT,
		owner      TEXT    NOT NULL,
		name       TEXT    NOT NULL COLLATE NOCASE,
		system     TEXT    NOT NULL,
		settings   TEXT    NOT NULL,
		created_at INTEGER NOT NULL,
		updated_at INTEGER NOT NULL,
		uses       INTEGER NOT NULL DEFAULT 7,
		UNIQUE (owner, name)
	 ) STRICT;
	 INSERT INTO presets_new (id, owner, name, system, settings, created_at, updated_at) SELECT * FROM presets;
	 DROP TABLE presets;
	 ALTER TABLE presets_new RENAME TO presets;`,
	`UPDATE conversations SET folder = 'migrated ' || folder;
	 CREATE INDEX conversations_by_folder ON conversations (folder);`,
}

// playMigration opens the store with newer migrations, and ends its own process at
// the statement or commit STORE_KILL. Without that it says how many there were.
func playMigration(path string) error {
	var n atomic.Int64
	kill, _ := strconv.ParseInt(os.Getenv("STORE_KILL"), 10, 64)
	step := func() {
		if n.Add(1) == kill {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it is delivered
		}
	}
	opt := Options{Path: path, Ballast: -1, connected: func(c *sqlite3.SQLiteConn) error {
		// SQLite asks for leave several times for each statement that it compiles.
		c.RegisterAuthorizer(func(op int, a, b, db string) int {
			if op != sqlite3.SQLITE_READ && op != sqlite3.SQLITE_FUNCTION {
				step()
			}
			return sqlite3.SQLITE_OK
		})
		c.RegisterCommitHook(func() int { step(); return 0 })
		return nil
	}}
	var err error
	if opt.migrations, err = futureMigrations(later...); err != nil {
		return err
	}
	s, err := Open(ctx, opt)
	if err != nil {
		return err
	}
	fmt.Println(n.Load())
	return s.Close()
}

// TestKill_InAMigration kills a migration at its statements, that of a database with
// content and the making of a new one. The next start does what is left to do.
func TestKill_InAMigration(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, opt Options)
	}{
		{"of a database with content", func(t *testing.T, opt Options) {
			s := mustOpen(t, opt)
			for i := range 5 {
				talk(t, s, fmt.Sprint("c", i), "question", "answer")
				must[Preset](t)(s.CreatePreset(ctx, me, Preset{Name: fmt.Sprint("p", i)}))
			}
			mustDo(t, s.Close())
		}},
		{"that makes a new database", func(*testing.T, Options) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := testOptions(t)
			c.make(t, base)
			counted := helper(t, "migrate", copyOf(t, base.Path))
			total := must[int](t)(strconv.Atoi(strings.TrimSpace(string(must[[]byte](t)(counted.Output())))))
			if total < 50 {
				t.Fatalf("the migration has only %d steps", total)
			}
			want := migrated(t, copyOf(t, base.Path))
			kills := 0
			for at := 1; at <= total; at += counts(total/12, 1) {
				path := copyOf(t, base.Path)
				var exit *exec.ExitError
				err := helper(t, "migrate", path, fmt.Sprint("STORE_KILL=", at)).Run()
				if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("step %d of %d: %v", at, total, err)
				}
				kills++
				if got := migrated(t, path); got != want {
					t.Fatalf("killed at step %d of %d, the database is\n%s, want\n%s", at, total, got, want)
				}
			}
			t.Logf("%d kills in %d steps", kills, total)
		})
	}
}

// copyOf copies a closed database, if there is one, to a folder of its own.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(privateDir(t), "chats.db")
	if size(path) > 0 {
		mustDo(t, copyFile(to, path))
	}
	return to
}

// migrated opens the store with the newer migrations and returns what it holds.
func migrated(t *testing.T, path string) string {
	t.Helper()
	opt := Options{Path: path, Ballast: -1, Now: func() time.Time { return time.UnixMilli(1) }}
	opt.migrations = future(t, later...)
	s := mustOpen(t, opt)
	mustDo(t, s.Close())
	var kept []string // all but the times at which migrations were applied
	for line := range strings.Lines(dump(t, path)) {
		if strings.HasPrefix(line, "schema_migrations: ") {
			line = line[:strings.LastIndexByte(line, ',')] + "\n"
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "")
}
