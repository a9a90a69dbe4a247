package live

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/store"
)

// reader rebuilds a chat from what it is sent, as a page does.
type reader struct {
	sub      *Subscription
	seq      int64
	title    string
	panel    Panel
	system   string
	messages []Message
	more     bool // there are messages before these
}

func (r *reader) follow(c *Chat, since int64) error {
	sub, snapshot, err := c.Subscribe(context.Background(), me, since)
	if err != nil {
		return err
	}
	r.sub = sub
	if snapshot != nil {
		r.seq, r.title, r.messages, r.more = snapshot.Seq, snapshot.Title, nil, snapshot.More
		r.panel, r.system = snapshot.Panel, snapshot.System
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

func (r *reader) at(id int64) int {
	return slices.IndexFunc(r.messages, func(m Message) bool { return m.ID == id })
}

func (r *reader) apply(e Event) error {
	at := r.at(e.ID)
	if at < 0 && (e.Type == EventProgress || e.Type == EventText || e.Type == EventBlock || e.Type == EventEnd) {
		return fmt.Errorf("event %d, %s, is about message %d, which is not there", e.Seq, e.Type, e.ID)
	}
	switch e.Type {
	case EventMessage:
		if at >= 0 {
			r.messages[at] = copied(*e.Message)
			break
		}
		above := r.at(e.Message.Parent)
		if above < 0 {
			r.more = e.Message.Parent != 0
		}
		r.messages = append(r.messages[:above+1], copied(*e.Message))
	case EventText:
		m := &r.messages[at]
		m.Text += e.Text
		m.Answer.State, m.Answer.Usage.CompletionTokens = Writing, e.Tokens
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
	case EventBranch:
		if at < 0 {
			r.more = e.More || e.ID != 0
		}
		r.messages = r.messages[:at+1]
		for _, m := range e.Messages {
			r.messages = append(r.messages, copied(m))
		}
	case EventTitle:
		r.title = e.Text
	case EventPanel:
		if e.Panel != nil {
			r.panel, r.system = *e.Panel, e.Text
		}
	case EventProgress:
	default:
		return fmt.Errorf("event %d is of the unknown type %q", e.Seq, e.Type)
	}
	return nil
}

// differs says how what the reader has differs from the end of the branch that is shown.
func (r *reader) differs(c *Chat) string {
	path := c.branch
	if r.more {
		path = path[max(0, len(path)-len(r.messages)):]
	}
	if r.seq != c.readers.seq || len(r.messages) != len(path) || r.title != c.metadata.Title {
		return fmt.Sprintf("%q with %d messages at event %d, want %q with %d at %d", r.title, len(r.messages), r.seq, c.metadata.Title, len(path), c.readers.seq)
	}
	if !reflect.DeepEqual(r.panel, c.panel) || r.system != c.metadata.System {
		return fmt.Sprintf("the panel is %+v, %q, want %+v, %q", r.panel, r.system, c.panel, c.metadata.System)
	}
	for i, t := range path {
		got, want := r.messages[i], t.message()
		if got.ID != want.ID || got.Parent != want.Parent || got.Version != want.Version || got.Versions != want.Versions || got.Role != want.Role || got.Text != want.Text {
			return fmt.Sprintf("message %d is %+v, want %+v", got.ID, got, want)
		}
		if want.Answer != nil && (got.Answer.State != want.Answer.State || got.Answer.Rewritten != want.Answer.Rewritten ||
			got.Answer.Usage.CompletionTokens != want.Answer.Usage.CompletionTokens || got.Answer.Blocks != want.Answer.Blocks) {
			return fmt.Sprintf("answer %d is %+v, want %+v", got.ID, got.Answer, want.Answer)
		}
	}
	return ""
}

// loses says how what is stored differs from the branch that is shown. Versions are
// counted when a message is read, so only ids, text and states are compared.
func loses(c *Chat) string {
	branch, err := c.messages.Branch(context.Background(), store.OwnerID, c.id)
	if err != nil || len(branch) != len(c.branch) {
		return fmt.Sprintf("%d messages are stored (%v), want %d", len(branch), err, len(c.branch))
	}
	for i, t := range c.branch {
		stored, want := fromStore(branch[i]).message(), t.message()
		if stored.ID != want.ID || stored.Parent != want.Parent || stored.Role != want.Role || stored.Text != want.Text && !running(t) {
			return fmt.Sprintf("message %d is stored as %+v, want %+v", stored.ID, stored, want)
		}
		if want.Answer != nil && !running(t) && (stored.Answer.State != want.Answer.State || stored.Answer.Rewritten != want.Answer.Rewritten || stored.Answer.Usage.CompletionTokens != want.Answer.Usage.CompletionTokens) {
			return fmt.Sprintf("answer %d is stored as %+v, want %+v", stored.ID, stored.Answer, want.Answer)
		}
	}
	return ""
}

func running(t *turn) bool { return t.Answer != nil && t.Answer.State.Running() }

// TestReadersSeeTheChat runs any commands against any readers: whenever a reader
// joins, falls behind or comes back, it ends with what the chat holds, each event
// once and in order; and what the chat holds is stored.
func TestReadersSeeTheChat(t *testing.T) {
	t.Run("of a temporary chat", func(t *testing.T) { checkReaders(t, nil) })
	t.Run("of a stored chat", func(t *testing.T) { checkReaders(t, openStore(t, storePath(t))) })
}

func checkReaders(t *testing.T, db Store) {
	word := rapid.SampledFrom([]string{"a ", "\n", "\n\n", "- b", "```\n", "# c\n", "", "ü"})
	visible := word.Filter(func(w string) bool { return strings.TrimSpace(w) != "" })
	rapid.Check(t, func(t *rapid.T) {
		engine := newScript()
		s := New(engine, Options{
			QueueEvents: rapid.IntRange(1, 20).Draw(t, "queue"),
			QueueBytes:  rapid.IntRange(100, 4000).Draw(t, "bytes"),
			History:     rapid.IntRange(1, 30).Draw(t, "history"),
			Store:       db,
			Page:        rapid.IntRange(1, 5).Draw(t, "page"),
		})
		defer s.Close()
		c, err := s.Create(context.Background(), me, db == nil)
		if err != nil {
			t.Fatal(err)
		}
		var readers []*reader
		var running *answer
		// check says whether a command was carried out, as it should be if it fits.
		check := func(err error, fits bool) bool {
			var conflict *owned.Conflict
			var invalid *fault.Error
			switch {
			case running != nil && !errors.As(err, &conflict):
				t.Fatalf("while an answer was written a command returned %v", err)
			case running == nil && fits && err != nil:
				t.Fatalf("a command that fits was refused: %v", err)
			case running == nil && !fits && !errors.As(err, &invalid):
				t.Fatalf("a command that does not fit returned %v", err)
			}
			return err == nil
		}
		pick := func(t *rapid.T) *turn {
			if len(c.branch) == 0 {
				return &turn{Message: Message{ID: 99}}
			}
			return rapid.SampledFrom(c.branch).Draw(t, "message")
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
			if diff := r.differs(c); diff != "" {
				t.Fatal(diff)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if !c.started {
					return
				}
				if diff := loses(c); diff != "" {
					t.Fatal(diff)
				}
			},
			"send": func(t *rapid.T) {
				if check(c.Send(context.Background(), me, question(visible.Draw(t, "text"))), true) {
					running = <-engine.asked
				}
			},
			"keep": func(t *rapid.T) {
				if !c.started {
					return
				}
				p := Panel{Settings: setting.Default()}
				p.TopK = rapid.IntRange(1, 9).Draw(t, "top-k")
				if _, err := c.SetPanel(context.Background(), me, p, word.Draw(t, "system prompt")); err != nil {
					t.Fatal(err)
				}
			},
			"regenerate": func(t *rapid.T) {
				m := pick(t)
				fits := m.Role == RoleModel
				id := m.ID
				if rapid.Bool().Draw(t, "the last") {
					id, fits = 0, len(c.branch) > 0
				}
				if check(c.Regenerate(context.Background(), me, id, "", setting.Default()), fits) {
					running = <-engine.asked
				}
			},
			"edit": func(t *rapid.T) {
				m := pick(t)
				if check(c.Edit(context.Background(), me, m.ID, question(visible.Draw(t, "text"))), m.Role == RoleUser) {
					running = <-engine.asked
				}
			},
			"rewrite": func(t *rapid.T) {
				m := pick(t)
				check(c.Rewrite(context.Background(), me, m.ID, visible.Draw(t, "text"), ""), m.Role == RoleModel)
			},
			"continue": func(t *rapid.T) {
				m := pick(t)
				before := m.text.String()
				if check(c.Continue(context.Background(), me, m.ID, setting.Default()), m.Role == RoleModel && m.ID == c.branch.leaf()) {
					running = <-engine.asked
					asked := running.request
					last := asked.Messages[len(asked.Messages)-1]
					if asked.Continue != (before != "") || asked.Continue && last.Content != before {
						t.Fatalf("to continue %q the engine was asked %+v", before, asked)
					}
				}
			},
			"select": func(t *rapid.T) {
				m := pick(t)
				version := rapid.IntRange(0, 3).Draw(t, "version")
				if check(c.Select(context.Background(), me, m.ID, version), version <= m.Versions && m.Role != "") && version > 0 {
					if at := c.branch.upTo(m.Parent); c.branch[at].Version != version {
						t.Fatalf("version %d is shown, want %d", c.branch[at].Version, version)
					}
				}
			},
			"fork": func(t *rapid.T) {
				m := pick(t)
				id, err := s.Fork(context.Background(), me, c, m.ID)
				var conflict *owned.Conflict
				switch {
				case m.Role == "" && err == nil, m.Role != "" && err != nil && (running == nil || !errors.As(err, &conflict)):
					t.Fatalf("a fork returned %v", err)
				case err != nil:
					return
				}
				fork, err := s.Chat(context.Background(), me, id)
				if err != nil {
					t.Fatal(err)
				}
				for i, copied := range fork.branch {
					if want := c.branch[i]; copied.Text != want.Text || copied.text.String() != want.text.String() || copied.Role != want.Role {
						t.Fatalf("message %d was copied as %+v, want %+v", i, copied.message(), want.message())
					}
				}
				if len(fork.branch) != c.branch.upTo(m.ID) {
					t.Fatalf("%d messages were copied, want %d", len(fork.branch), c.branch.upTo(m.ID))
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
					running.do(infer.Event{}, &fault.Error{Code: fault.CodeDevice, Message: "gone"})
					end()
				}
			},
			"stop": func(t *rapid.T) {
				var conflict *owned.Conflict
				if err := c.Stop(context.Background(), me, 0); (err == nil) != (running != nil) || err != nil && !errors.As(err, &conflict) {
					t.Fatalf("stop returned %v", err)
				}
				if running != nil {
					end()
				}
			},
			"rename": func(t *rapid.T) {
				if c.started {
					c.rename(visible.Draw(t, "title"))
				}
			},
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
			"read older messages": func(t *rapid.T) {
				if len(readers) == 0 {
					return
				}
				r := rapid.SampledFrom(readers).Draw(t, "reader")
				catchUp(r)
				if len(r.messages) == 0 {
					return
				}
				list, more, err := c.Older(context.Background(), me, r.messages[0].ID)
				if err != nil || (len(list) > 0) != r.more || len(list) > s.opt.Page {
					t.Fatalf("%d older messages came (%v), though it was said that more is %v", len(list), err, r.more)
				}
				r.messages, r.more = append(list, r.messages...), more
				catchUp(r)
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
