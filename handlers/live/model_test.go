package live

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"m40-llm/infer"
)

// reader rebuilds a chat from what it is sent, as a page does.
type reader struct {
	sub      *Subscription
	seq      int64
	messages []Message
}

func (r *reader) follow(c *Chat, since int64) error {
	sub, snapshot, err := c.Subscribe(since)
	if err != nil {
		return err
	}
	r.sub = sub
	if snapshot != nil {
		r.seq, r.messages = snapshot.Seq, nil
		for _, m := range snapshot.Messages {
			r.messages = append(r.messages, copied(m))
		}
	}
	return nil
}

func copied(m Message) Message {
	if m.Answer != nil {
		a := *m.Answer
		m.Answer = &a
	}
	return m
}

// drain applies what has come and reports whether the reader fell behind.
func (r *reader) drain() (slow bool, err error) {
	events, ended := r.sub.Take()
	for _, e := range events {
		if e.First != r.seq+1 || e.Seq < e.First {
			return false, fmt.Errorf("after event %d came %d to %d", r.seq, e.First, e.Seq)
		}
		r.seq = e.Seq
		if err := r.apply(e); err != nil {
			return false, err
		}
	}
	return errors.Is(ended, ErrSlow), nil
}

func (r *reader) apply(e Event) error {
	at := -1
	for i := range r.messages {
		if r.messages[i].ID == e.ID {
			at = i
		}
	}
	if e.Type != EventMessage && e.Type != EventCleared && at < 0 {
		return fmt.Errorf("event %d, %s, is about message %d, which is not there", e.Seq, e.Type, e.ID)
	}
	switch e.Type {
	case EventMessage:
		r.messages = append(r.messages, copied(*e.Message))
	case EventText:
		m := &r.messages[at]
		m.Text += e.Text
		m.Answer.State, m.Answer.Tokens = Writing, e.Tokens
	case EventBlock:
		m := &r.messages[at]
		if !strings.HasPrefix(m.Text[m.Answer.Blocks:], e.Text) {
			return fmt.Errorf("the block %q is not what was sent: %q", e.Text, m.Text[m.Answer.Blocks:])
		}
		m.Answer.Blocks += len(e.Text)
	case EventEnd:
		text, blocks := r.messages[at].Text, r.messages[at].Answer.Blocks
		if e.Message.Text != text || e.Message.Answer.Blocks != blocks {
			return fmt.Errorf("the answer ended as %q, but %q was sent", e.Message.Text, text)
		}
		r.messages[at] = copied(*e.Message)
	case EventRemoved:
		r.messages = append(r.messages[:at], r.messages[at+1:]...)
	case EventCleared:
		r.messages = nil
	}
	return nil
}

// differs says how what the reader has differs from the chat.
func (r *reader) differs(s *Snapshot) string {
	if r.seq != s.Seq || len(r.messages) != len(s.Messages) {
		return fmt.Sprintf("%d messages at event %d, want %d at %d", len(r.messages), r.seq, len(s.Messages), s.Seq)
	}
	for i, want := range s.Messages {
		got := r.messages[i]
		if got.ID != want.ID || got.Role != want.Role || got.Text != want.Text {
			return fmt.Sprintf("message %d is %q, want %q", got.ID, got.Text, want.Text)
		}
		if want.Answer != nil && (got.Answer.State != want.Answer.State || got.Answer.Tokens != want.Answer.Tokens || got.Answer.Blocks != want.Answer.Blocks) {
			return fmt.Sprintf("answer %d is %+v, want %+v", got.ID, got.Answer, want.Answer)
		}
	}
	return ""
}

// TestReadersSeeTheChat runs any commands against any readers: whenever a reader
// joins, falls behind or comes back, it ends with what the chat holds, each event
// once and in order.
func TestReadersSeeTheChat(t *testing.T) {
	word := rapid.SampledFrom([]string{"a ", "\n", "\n\n", "- b", "```\n", "# c\n", "", "ü"})
	rapid.Check(t, func(t *rapid.T) {
		engine := newScript()
		s := New(engine, Options{
			QueueEvents: rapid.IntRange(1, 20).Draw(t, "queue"),
			QueueBytes:  rapid.IntRange(100, 4000).Draw(t, "bytes"),
			History:     rapid.IntRange(1, 30).Draw(t, "history"),
		})
		defer s.Close()
		c, err := s.Create()
		if err != nil {
			t.Fatal(err)
		}
		var readers []*reader
		var running *answer
		check := func(err error, fits bool) {
			var conflict *Conflict
			switch {
			case fits && err != nil:
				t.Fatalf("a command that fits was refused: %v", err)
			case !fits && err == nil:
				t.Fatal("a command that does not fit was carried out")
			case !fits && !errors.As(err, &conflict) && len(c.messages) > 0:
				t.Fatalf("a command that does not fit returned %v", err)
			}
		}
		end := func() { settle(c); running = nil }
		catchUp := func(r *reader) {
			for {
				slow, err := r.drain()
				if err != nil {
					t.Fatal(err)
				}
				if !slow {
					break
				}
				if err := r.follow(c, r.seq); err != nil {
					t.Fatal(err)
				}
			}
			if diff := r.differs(c.snapshot()); diff != "" {
				t.Fatal(diff)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				err := c.Send(question(word.Filter(func(w string) bool { return strings.TrimSpace(w) != "" }).Draw(t, "text")))
				check(err, running == nil)
				if err == nil {
					running = <-engine.asked
				}
			},
			"regenerate": func(t *rapid.T) {
				err := c.Regenerate("", DefaultSettings())
				check(err, running == nil && len(c.messages) > 0)
				if err == nil {
					running = <-engine.asked
				}
			},
			"write": func(t *rapid.T) {
				if running != nil {
					running.write(word.Draw(t, "token"))
				}
			},
			"wait": func(t *rapid.T) {
				if running != nil && running.tokens == 0 {
					running.do(infer.Event{Type: infer.EventPrefill, Prefill: &infer.Prefill{Done: 1, Total: 2}}, nil)
				}
			},
			"finish": func(*rapid.T) {
				if running != nil {
					running.finish()
					end()
				}
			},
			"fail": func(*rapid.T) {
				if running != nil {
					running.do(infer.Event{}, &infer.Error{Code: infer.CodeDevice, Message: "gone"})
					end()
				}
			},
			"stop": func(*rapid.T) {
				check(c.Stop(0), running != nil)
				if running != nil {
					end()
				}
			},
			"clear": func(*rapid.T) { check(c.Clear(), running == nil) },
			"join": func(*rapid.T) {
				r := &reader{}
				if err := r.follow(c, 0); err != nil {
					t.Fatal(err)
				}
				readers = append(readers, r)
			},
			"leave and come back": func(t *rapid.T) {
				if len(readers) > 0 {
					r := rapid.SampledFrom(readers).Draw(t, "reader")
					r.sub.Close()
					if err := r.follow(c, r.seq); err != nil {
						t.Fatal(err)
					}
				}
			},
			"read": func(t *rapid.T) {
				if len(readers) > 0 {
					catchUp(rapid.SampledFrom(readers).Draw(t, "reader"))
				}
			},
		})
		for _, r := range readers {
			catchUp(r)
		}
	})
}
