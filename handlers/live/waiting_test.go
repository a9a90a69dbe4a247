package live

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"m40-llm/store"
)

// slowStore delays what one chat stores and reads until resume takes a value.
type slowStore struct {
	*store.Store
	chat    string
	reached chan struct{}
	resume  chan struct{}
}

func (s *slowStore) Ask(ctx context.Context, Owner, conversation string, q store.NewMessage, a store.NewAnswer) (question, answer store.Message, err error) {
	s.wait(conversation)
	return s.Store.Ask(ctx, Owner, conversation, q, a)
}

func (s *slowStore) FinishAnswer(ctx context.Context, Owner, conversation string, message int64, f store.Finish) (store.Message, error) {
	s.wait(conversation)
	return s.Store.FinishAnswer(ctx, Owner, conversation, message, f)
}

func (s *slowStore) Messages(ctx context.Context, Owner, conversation string, after int64) ([]store.Message, error) {
	s.wait(conversation)
	return s.Store.Messages(ctx, Owner, conversation, after)
}

func (s *slowStore) wait(conversation string) {
	if conversation == s.chat {
		s.reached <- struct{}{}
		<-s.resume
	}
}

// inTime fails the test if do does not return: it waits for what it must not wait for.
func inTime(t *testing.T, what string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("%s waits", what)
	}
}

// TestNobodyWaitsForTheDiskOfAnotherChat delays the store while it works for one chat: the
// others are read and written meanwhile, and the chat itself is read.
func TestNobodyWaitsForTheDiskOfAnotherChat(t *testing.T) {
	path := storePath(t)
	db := openStore(t, path)
	before, engine := newService(t, Options{Store: db})
	c, a := start(t, before, engine, "not in memory")
	a.finish()
	settle(c)
	stored := c.ID()
	before.Close()

	slow := &slowStore{Store: db, reached: make(chan struct{}), resume: make(chan struct{})}
	s, engine := newService(t, Options{Store: slow})
	held, a := start(t, s, engine, "held up")
	a.finish()
	settle(held)
	other, a := start(t, s, engine, "other")
	a.finish()
	settle(other)
	slow.chat = held.ID()
	var running *answer
	for _, work := range []struct {
		name string
		do   func() error
	}{
		{"a question", func() error { return held.Send(context.Background(), me, question("two")) }},
		{"the end of an answer", func() error {
			running = <-engine.asked
			running.finish()
			settle(held)
			return nil
		}},
		{"a copy", func() error {
			_, err := s.Fork(context.Background(), me, held, lastMessage(t, held).ID)
			return err
		}},
	} {
		worked := make(chan error, 1)
		go func() { worked <- work.do() }()
		<-slow.reached
		inTime(t, "to read the chat beside "+work.name, func() error {
			again, err := s.Chat(context.Background(), me, held.ID())
			if err == nil {
				var sub *Subscription
				if sub, _, err = again.Subscribe(context.Background(), me, 0); err == nil {
					sub.Close()
				}
			}
			return err
		})
		inTime(t, "a question in another chat beside "+work.name, func() error { return other.Send(context.Background(), me, question("meanwhile")) })
		(<-engine.asked).finish()
		settle(other)
		inTime(t, "to open a stored chat beside "+work.name, func() error {
			_, err := s.Chat(context.Background(), me, stored)
			return err
		})
		inTime(t, "a new chat beside "+work.name, func() error {
			_, err := s.Start(context.Background(), me, question("new"), false)
			return err
		})
		(<-engine.asked).finish()
		slow.release(worked, t)
	}
}

// release resumes the store until the work is done.
func (s *slowStore) release(worked chan error, t *testing.T) {
	t.Helper()
	for {
		select {
		case s.resume <- struct{}{}:
		case <-s.reached:
		case err := <-worked:
			if err != nil {
				t.Fatal(err)
			}
			return
		}
	}
}

func TestOnlyTwoChatsAreImportedAtOnce(t *testing.T) {
	s, _ := newService(t, Options{Store: openStore(t, storePath(t))})
	const all = 5
	started, resume, done := make(chan struct{}, all), make(chan struct{}), make(chan error, all)
	for range all {
		go func() {
			_, err := s.Import(context.Background(), me, func(yield func(store.Message, error) bool) {
				started <- struct{}{}
				<-resume
				yield(store.Message{ID: 1, Role: store.RoleUser, State: store.Done, Text: "x"}, nil)
			}, func() (store.Metadata, int64, error) { return store.Metadata{}, 1, nil })
			done <- err
		}()
	}
	for left := all; left > 0; left-- {
		<-started
		if left > 1 && left == all {
			<-started
		}
		if n := len(started); n > 0 {
			t.Errorf("%d more are imported at the same time", n)
		}
		resume <- struct{}{}
		must(t, <-done)
		if left == 2 {
			resume <- struct{}{}
			must(t, <-done)
			break
		}
	}
}

func TestAnswersThatNobodyReadsDoNotShutOutOthers(t *testing.T) {
	db := openStore(t, storePath(t))
	s, engine := newService(t, Options{Store: db, MaxChats: 6, MaxUnwatched: 4})
	c, a := start(t, s, engine, "stored")
	a.finish()
	settle(c)
	started := 0
	for i := range 30 {
		switch _, err := s.Start(context.Background(), me, question(fmt.Sprint(i)), false); {
		case err == nil:
			started++
		case !errors.Is(err, ErrFull):
			t.Fatal(err)
		}
	}
	if started != 4 {
		t.Errorf("%d answers are written that nobody reads, want 4", started)
	}
	open, err := s.Chat(context.Background(), me, c.ID())
	must(t, err)
	must(t, open.Send(context.Background(), me, question("still here")))
	for range started {
		(<-engine.asked).finish()
	}
}
