package disk

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/infer/kvfile"
	"m40-llm/store"
)

// slowDisk is a store whose disk is asked for its space and does not answer at first.
type slowDisk struct {
	Store
	asked  chan struct{}
	answer chan int64
}

func (d slowDisk) Free() (int64, bool, error) { d.asked <- struct{}{}; return <-d.answer, true, nil }
func (d slowDisk) Present() error             { return nil }

func TestSpace_ADiskThatDoesNotAnswerHoldsUpOnePage(t *testing.T) {
	db := slowDisk{asked: make(chan struct{}, 9), answer: make(chan int64, 1)}
	now := time.Now()
	s := New(t.Context(), db, nil, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	db.answer <- 7
	if got := s.Space(); got.Free != 7 {
		t.Fatalf("got %+v", got)
	}
	<-db.asked
	now = now.Add(spaceAge)
	looked := make(chan Space)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { looked <- s.Space(); cancel() }()
	<-db.asked
	for range 3 { // further pages
		if got := s.Space(); got.Free != 7 {
			t.Errorf("another page gets %+v", got)
		}
	}
	db.answer <- 9
	if got := <-looked; got.Free != 9 || s.Space().Free != 9 {
		t.Errorf("the page that looked gets %+v", got)
	}
	<-ctx.Done()
	if len(db.asked) > 0 {
		t.Error("others asked the disk too")
	}
}

// The limits of what is stored of all people are the owner's of the server.
func TestTheLimitsOfTheServerAreItsOwners(t *testing.T) {
	caches, err := kvfile.OpenDir(filepath.Join(t.TempDir(), "kv"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "chats.db"), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, me := New(t.Context(), db, caches, time.Now, slog.New(slog.DiscardHandler)), access.Local
	limits, _, err := s.RowLimits(t.Context(), me)
	if err != nil {
		t.Fatal(err)
	}
	for name, who := range map[string]access.Principal{"nobody": {}, "a person": {Owner: "another"}, "a guest": {Share: &store.Share{Owner: me.Owner}, Writer: 1}} {
		if err := s.SetRowLimits(t.Context(), who, limits); !errors.Is(err, access.ErrDenied) {
			t.Errorf("%s sets how long candidates are stored: %v", name, err)
		}
		if err := s.SetKVLimit(t.Context(), who, 1); !errors.Is(err, access.ErrDenied) {
			t.Errorf("%s sets how large the KV caches are: %v", name, err)
		}
	}
	if err := errors.Join(s.SetRowLimits(t.Context(), me, limits), s.SetKVLimit(t.Context(), me, 1)); err != nil {
		t.Error(err)
	}
}
