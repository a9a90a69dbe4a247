package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mattn/go-sqlite3"
)

func TestSpace_NewConversationsNeedSome(t *testing.T) {
	opt := testOptions(t)
	var free atomic.Int64
	free.Store(1 << 40)
	opt.free = func(string) (int64, error) { return free.Load(), nil }
	opt.Ballast = 1 << 16
	s := mustOpen(t, opt)
	q, a := start(t, s, "x", "hello")
	free.Store(256<<20 - 1)
	if bytes, enough, err := s.Free(); bytes != 256<<20-1 || enough || err != nil {
		t.Errorf("free: %d, %v, %v", bytes, enough, err)
	}
	for name, do := range map[string]func() error{
		"CreateConversation": func() error { return second(s.CreateConversation(ctx, me, Metadata{})) },
		"Start": func() error {
			_, _, _, err := s.Start(ctx, me, Metadata{}, NewMessage{Role: RoleUser}, NewAnswer{})
			return err
		},
	} {
		var space *SpaceError
		if err := do(); !errors.As(err, &space) || space.Free != 256<<20-1 || space.Need != 256<<20 {
			t.Errorf("%s on a disk nearly full: %v", name, err)
		}
	}
	// What has begun goes on.
	must[[]int64](t)(s.SaveProgress(ctx, []Progress{{me, "x", a.ID, "par", "", nil, nil}}))
	must[Message](t)(s.FinishAnswer(ctx, me, "x", a.ID, Finish{State: Done, Text: "partial"}))
	must[Message](t)(s.AddMessage(ctx, me, "x", NewMessage{Parent: q.ID, Role: RoleUser, Text: "more"}))
	must[[]Message](t)(s.Branch(ctx, me, "x"))

	t.Run("the ballast is dropped once, and filled when there is room", func(t *testing.T) {
		if size(opt.Path+".ballast") != 1<<16 {
			t.Fatalf("the ballast has %d bytes", size(opt.Path+".ballast"))
		}
		calls := 0
		full := func(*sql.Tx) error { calls++; return sqlite3.Error{Code: sqlite3.ErrFull} }
		var space *SpaceError
		if err := s.write(ctx, full); !errors.As(err, &space) || calls != 2 || size(opt.Path+".ballast") != 0 {
			t.Errorf("%d calls, %d bytes of ballast, %v", calls, size(opt.Path+".ballast"), err)
		}
		if err := s.write(ctx, full); !errors.As(err, &space) || calls != 3 {
			t.Errorf("%d calls without ballast, %v", calls, err)
		}
		free.Store(256 << 20)
		must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{}))
		if size(opt.Path+".ballast") != 0 {
			t.Error("the ballast took what conversations need")
		}
		free.Store(1 << 40)
		must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{}))
		if size(opt.Path+".ballast") != 1<<16 {
			t.Error("the ballast was not filled")
		}
	})
}

// fullDisks are ways for a disk to be full. Each calls check with a store, how to
// fill the disk, and how to free space again.
var fullDisks = []struct {
	name string
	run  func(t *testing.T, check func(t *testing.T, s *Store, fill, clear func(), point int))
}{{
	"the database may not grow",
	func(t *testing.T, check func(t *testing.T, s *Store, fill, clear func(), point int)) {
		for point := range counts(8, 64) {
			s := newStore(t)
			check(t, s, func() {
				var pages int
				mustDo(t, s.writer.db.QueryRow(`PRAGMA page_count`).Scan(&pages))
				must[sql.Result](t)(s.writer.db.Exec(fmt.Sprint(`PRAGMA max_page_count = `, pages+point)))
			}, func() {
				must[sql.Result](t)(s.writer.db.Exec(`PRAGMA max_page_count = 1000000`))
			}, point)
			mustDo(t, s.Close())
		}
	},
}}

// TestSpace_AFullDiskLosesNothing writes until the disk is full, at different points
// of the writes, reads on, makes room, and writes on without a restart.
func TestSpace_AFullDiskLosesNothing(t *testing.T) {
	for _, c := range fullDisks {
		t.Run(c.name, func(t *testing.T) { c.run(t, checkFullDisk) })
	}
}

func checkFullDisk(t *testing.T, s *Store, fill, clear func(), point int) {
	t.Helper()
	_, a := start(t, s, "running", "hello")
	fill()
	saved := ""
	acknowledged := map[string]bool{}
	var space *SpaceError
	for i := 0; ; i++ {
		id := fmt.Sprint("c", i)
		_, _, _, err := s.Start(ctx, me, Metadata{ID: id}, NewMessage{Role: RoleUser, Text: strings.Repeat("hello ", 50)}, NewAnswer{})
		if err == nil {
			acknowledged[id] = true
			text := saved + strings.Repeat("word ", 100)
			if _, err = s.SaveProgress(ctx, []Progress{{me, "running", a.ID, text, "", nil, nil}}); err == nil {
				saved = text
			}
		}
		if errors.As(err, &space) {
			break
		}
		if err != nil || i > 100_000 {
			t.Fatalf("point %d, write %d: %v, want a *SpaceError", point, i, err)
		}
	}
	verify := func(s *Store) {
		t.Helper()
		if m := must[Message](t)(s.Message(ctx, me, "running", a.ID)); m.Text != saved {
			t.Errorf("point %d: %d bytes of the answer were acknowledged, it has %d", point, len(saved), len(m.Text))
		}
		for id := range acknowledged {
			must[Conversation](t)(s.Conversation(ctx, me, id))
		}
	}
	verify(s)
	clear()
	saved += "end"
	must[Message](t)(s.FinishAnswer(context.WithoutCancel(ctx), me, "running", a.ID, Finish{State: Done, Text: saved}))
	must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{ID: "after"}))
	verify(s)
	if detail, err := check(ctx, s.readers); detail != "" || err != nil {
		t.Errorf("point %d: the database is damaged: %s %v", point, detail, err)
	}
	mustDo(t, s.Close())
	s = mustOpen(t, s.opt)
	acknowledged["after"] = true
	verify(s)
	mustDo(t, s.Close())
}
