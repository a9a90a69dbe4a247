package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mattn/go-sqlite3"
)

// stuck is a store whose first commit takes until released is closed.
type stuck struct {
	*Store
	commits  atomic.Int64
	reached  chan struct{}
	released chan struct{}
	calls    sync.WaitGroup
}

func newStuck(t *testing.T) *stuck {
	s := &stuck{reached: make(chan struct{}, 1), released: make(chan struct{})}
	var armed atomic.Bool
	opt := testOptions(t)
	opt.connected = func(c *sqlite3.SQLiteConn) error {
		c.RegisterCommitHook(func() int {
			if armed.Load() && s.commits.Add(1) == 1 {
				s.reached <- struct{}{}
				<-s.released
			}
			return 0
		})
		return nil
	}
	s.Store = mustOpen(t, opt)
	armed.Store(true)
	s.calls.Go(func() {
		if _, err := s.CreateConversation(ctx, me, Metadata{ID: "first"}); err != nil {
			t.Error(err)
		}
	})
	<-s.reached
	return s
}

// wait starts a call and returns when it waits for the writer.
func (s *stuck) wait(do func()) {
	waiting := func() int {
		s.writer.mu.Lock()
		defer s.writer.mu.Unlock()
		return len(s.writer.waiting)
	}
	n := waiting()
	s.calls.Go(do)
	for waiting() == n {
	}
}

func (s *stuck) release() {
	close(s.released)
	s.calls.Wait()
}

func (s *stuck) stored(t *testing.T) (ids []string) {
	for _, c := range must[[]Conversation](t)(s.Conversations(ctx, me, Filter{Limit: 500})) {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids
}

func TestWriter_CallsThatWaitForACommitShareTheNextOne(t *testing.T) {
	s := newStuck(t)
	errs := make([]error, 21)
	want := []string{"first"}
	for i := range errs {
		id := fmt.Sprintf("id-%02d", i)
		if i == 20 {
			id = "id-07" // is taken by then
		} else {
			want = append(want, id)
		}
		s.wait(func() { _, errs[i] = s.CreateConversation(ctx, me, Metadata{ID: id}) })
	}
	impatient, cancel := context.WithCancel(ctx)
	var left error
	s.wait(func() { _, left = s.CreateConversation(impatient, me, Metadata{ID: "left"}) })
	cancel()
	if list := s.stored(t); len(list) != 0 {
		t.Errorf("during the first commit a reader sees %v", list)
	}
	s.release()
	for i, err := range errs[:20] {
		if err != nil {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if !errors.Is(errs[20], ErrConflict) {
		t.Errorf("an id that another call of the group took: %v, want a conflict", errs[20])
	}
	if !errors.Is(left, context.Canceled) {
		t.Errorf("a call whose context ended while it waited: %v", left)
	}
	if got := s.stored(t); !slices.Equal(got, want) {
		t.Errorf("stored %v, want %v", got, want)
	}
	if n := s.commits.Load(); n != 2 {
		t.Errorf("%d commits, want the first and one for all that waited", n)
	}
}

func TestWriter_ACallThatEndsTheTransactionEndsNoOtherCall(t *testing.T) {
	s := newStuck(t)
	errs := make([]error, 3)
	for i := range errs {
		s.wait(func() {
			if i != 1 {
				_, errs[i] = s.CreateConversation(ctx, me, Metadata{ID: fmt.Sprint("id-", i)})
				return
			}
			errs[i] = s.write(ctx, func(tx *sql.Tx) error {
				_, _ = tx.Exec("ROLLBACK") // as SQLite does for a statement that is interrupted
				return errors.New("interrupted")
			})
		})
	}
	s.release()
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("the calls returned %v", errs)
	}
	if got := s.stored(t); !slices.Equal(got, []string{"first", "id-0", "id-2"}) {
		t.Errorf("stored %v", got)
	}
}

func TestWriter_APanicInACallIsAnErrorOfThoseWhoWereCommittedWithIt(t *testing.T) {
	s := newStuck(t)
	var err error
	var panics atomic.Int64
	call := func(do func() error) func() {
		return func() {
			defer func() {
				if recover() != nil {
					panics.Add(1)
				}
			}()
			if e := do(); e != nil {
				err = e
			}
		}
	}
	s.wait(call(func() error { return s.write(ctx, func(*sql.Tx) error { panic("a bug") }) }))
	s.wait(call(func() error { return second(s.CreateConversation(ctx, me, Metadata{ID: "beside"})) }))
	s.release()
	if panics.Load() != 1 || err == nil || len(s.stored(t)) != 1 {
		t.Errorf("%d panics, error %v, stored %v; want a panic, an error and the first conversation alone", panics.Load(), err, s.stored(t))
	}
	must[Conversation](t)(s.CreateConversation(ctx, me, Metadata{ID: "after"}))
}

// TestSlowCommits_Measure reports how long the messages of many chats take that are sent at once
// where every commit takes 2 s.
func TestSlowCommits_Measure(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("M40_LLM_HELD_ROUNDS"))
	if rounds == 0 {
		t.Skip("M40_LLM_HELD_ROUNDS is not set")
	}
	var slow atomic.Bool
	opt := testOptions(t)
	opt.connected = func(c *sqlite3.SQLiteConn) error {
		c.RegisterCommitHook(func() int {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return 0
		})
		return nil
	}
	s := mustOpen(t, opt)
	slow.Store(true)
	times := make([]time.Duration, rounds)
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() {
			began := time.Now()
			if _, err := s.CreateConversation(ctx, me, Metadata{}); err != nil {
				t.Error(err)
			}
			times[i] = time.Since(began)
		})
	}
	wg.Wait()
	slow.Store(false)
	slices.Sort(times)
	t.Logf("%d messages at once: median %v, p99 %v, most %v", rounds, times[rounds/2], times[rounds*99/100], times[rounds-1])
}
