package store

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// prose makes texts in which some words are frequent and others are rare.
func prose(random *rand.Rand, words int) string {
	var text strings.Builder
	for range words {
		fmt.Fprintf(&text, "w%d ", int(random.ExpFloat64()*400))
	}
	return text.String()
}

// fill gives the store conversations of four messages with about 6 KB of text each.
func fill(t testing.TB, s *Store, conversations int) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	for from := 0; from < conversations; from += 500 {
		err := s.write(ctx, func(tx *sql.Tx) error {
			for i := from; i < min(from+500, conversations); i++ {
				n := Metadata{ID: fmt.Sprintf("c%05d", i), Title: prose(random, 5), Placement: Placement{Folder: []string{"", "work", "home"}[i%3]}}
				if err := s.createConversation(ctx, tx, me, &n); err != nil {
					return err
				}
				parent := int64(0)
				for j := range 4 {
					m, err := s.addMessage(ctx, tx, me, n.ID, NewMessage{Parent: parent, Role: []Role{RoleUser, RoleAssistant}[j%2], Text: prose(random, 300)}, Done)
					if err != nil {
						return err
					}
					parent = m.ID
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkStore reports what a person waits for in a store of 10,000 conversations.
func BenchmarkStore(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "data")
	s, err := Open(ctx, Options{Path: filepath.Join(dir, "chats.db"), Ballast: -1})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, s, 10_000)
	_, q, _, err := s.Start(ctx, me, Metadata{ID: "long"}, NewMessage{Role: RoleUser}, NewAnswer{})
	if err != nil {
		b.Fatal(err)
	}
	for parent := q.ID; parent < q.ID+2000; {
		m, err := s.AddMessage(ctx, me, "long", NewMessage{Parent: parent, Role: RoleUser, Text: "hello"})
		if err != nil {
			b.Fatal(err)
		}
		parent = m.ID
	}
	var running []Progress
	for i := range 64 {
		id := fmt.Sprint("running", i)
		_, _, a, err := s.Start(ctx, me, Metadata{ID: id}, NewMessage{Role: RoleUser}, NewAnswer{})
		if err != nil {
			b.Fatal(err)
		}
		running = append(running, Progress{me, id, a.ID, strings.Repeat("word ", 1600), "", make([]int32, 2000), nil})
	}
	b.Logf("the database has %d MiB", size(s.opt.Path)>>20)
	for _, c := range []struct {
		name string
		do   func() error
	}{
		{"list 50 of 10,000", func() error { return second(s.Conversations(ctx, me, Filter{})) }},
		{"page of 100 of 2,000 messages", func() error { return second(s.Page(ctx, me, "long", 0, 0)) }},
		{"search a frequent word", func() error { return second(s.Search(ctx, me, Query{Text: "w3 "})) }},
		{"search a rare word", func() error { return second(s.Search(ctx, me, Query{Text: "w3333 "})) }},
		{"search two words", func() error { return second(s.Search(ctx, me, Query{Text: "w30 w1500 "})) }},
		{"search a beginning", func() error { return second(s.Search(ctx, me, Query{Text: "w33"})) }},
		{"search without the index", func() error { return second(s.Search(ctx, me, Query{Text: "日本"})) }},
		{"save a progress of 8 KB", func() error { return second(s.SaveProgress(ctx, running[:1])) }},
		{"save 64 progresses of 8 KB", func() error { return second(s.SaveProgress(ctx, running)) }},
		{"back up", func() error { return second(s.Backup(ctx)) }},
		{"erase a conversation", func() error {
			if err := second(s.CreateConversation(ctx, me, Metadata{ID: "erased"})); err != nil {
				return err
			}
			return s.Erase(ctx, me, "erased")
		}},
		{"check", func() error { return second(check(ctx, s.readers)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			worst := time.Duration(0)
			for b.Loop() {
				began := time.Now()
				if err := c.do(); err != nil {
					b.Fatal(err)
				}
				worst = max(worst, time.Since(began))
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		})
	}
	b.Run("save a progress while a backup runs", func(b *testing.B) {
		copied := make(chan error, 1)
		go func() { copied <- second(s.Backup(ctx)) }()
		worst := time.Duration(0)
		for b.Loop() {
			began := time.Now()
			if err := second(s.SaveProgress(ctx, running[:1])); err != nil {
				b.Fatal(err)
			}
			worst = max(worst, time.Since(began))
		}
		b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
		if err := <-copied; err != nil {
			b.Fatal(err)
		}
	})
	b.Run("close and open", func(b *testing.B) {
		for b.Loop() {
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			if s, err = Open(ctx, s.opt); err != nil {
				b.Fatal(err)
			}
		}
	})
	s.Close()
}
