package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/live"
	"m40-llm/handlers/owned"
	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var me = access.Local

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tokens writes tokens by their ids, each spelled as its name.
func tokens(a *handlerstest.ScriptedAnswer, ids ...int32) {
	for _, id := range ids {
		a.Count++
		text := string(rune('a' + id))
		a.Send(infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: id}, Text: text, Bytes: []byte(text)}})
	}
}

// end finishes with what an engine says of itself.
func end(a *handlerstest.ScriptedAnswer, engine string) {
	a.Send(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:   record.End{Reason: infer.FinishStop},
		Usage: record.Usage{PromptTokens: 5, CompletionTokens: a.Count},
		Receipt: record.Receipt{
			Params: a.Request.Params, Model: "guide", ModelHash: "m1", TemplateHash: "t1", Engine: engine, Device: "d1", Path: "p1", CacheType: "f16",
		},
	}}})
}

func snapshot(t testing.TB, c *live.Chat) *live.Snapshot {
	t.Helper()
	s, err := c.Snapshot(context.Background(), me, 0)
	must(t, err)
	return s
}

// last returns the last message when no answer is being written.
func last(t testing.TB, c *live.Chat) live.Message {
	t.Helper()
	for {
		list := snapshot(t, c).Messages
		if m := list[len(list)-1]; m.Answer == nil || !m.Answer.State.Running() {
			return m
		}
	}
}

// replayed waits until no replay runs and returns the last one.
func replayed(t testing.TB, c *live.Chat) live.Replay {
	t.Helper()
	for {
		if r := snapshot(t, c).Replay; r != nil && r.State != live.ReplayRunning {
			return *r
		}
	}
}

// looking is a server with stored chats that a test looks into.
type looking struct {
	*inspect.Service
	chats  *live.Service
	engine *handlerstest.Script
	db     *store.Store
}

func newLooking(t testing.TB) *looking {
	t.Helper()
	l := &looking{engine: handlerstest.NewScript(), db: handlerstest.OpenStoreAt(t, filepath.Join(t.TempDir(), "data", "chats.db"))}
	l.start(t)
	return l
}

// start starts the server on its store.
func (l *looking) start(t testing.TB) {
	l.chats = live.New(l.engine, live.Options{Store: l.db, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(l.chats.Close)
	l.Service = inspect.New(l.chats)
}

func (l *looking) ask(t testing.TB, q live.Question) (*live.Chat, *handlerstest.ScriptedAnswer) {
	t.Helper()
	c, err := l.chats.Start(context.Background(), me, q, false)
	must(t, err)
	return c, l.engine.Next(t)
}

func question(text string) live.Question {
	return live.Question{Text: text, Settings: setting.Default()}
}

// answered has a stored chat whose answer has the tokens 0, 1 and 2.
func answered(t testing.TB) (*looking, *live.Chat) {
	t.Helper()
	l := newLooking(t)
	q := question("one")
	q.System, q.Settings.TopK, q.Settings.Seed, q.Settings.Stop = "Be brief.", 7, 42, []string{"#"}
	c, a := l.ask(t, q)
	tokens(a, 0, 1, 2)
	end(a, "v1")
	last(t, c)
	return l, c
}

// Nobody looks into the answers of another person.
func TestAnAnswerOfAnotherDoesNotExist(t *testing.T) {
	l, c := answered(t)
	answer := last(t, c).ID
	ctx := t.Context()
	for _, who := range []access.Principal{{}, {Owner: "another"}, {Share: &store.Share{Owner: me.Owner, Conversation: c.ID()}}, {Share: &store.Share{Owner: me.Owner, Conversation: c.ID()}, Writer: 1}} {
		for name, do := range map[string]func() error{
			"tokens":        func() error { _, _, err := l.Tokens(ctx, who, c, answer, 0, 1, 1); return err },
			"least certain": func() error { _, _, err := l.LeastCertain(ctx, who, c, answer); return err },
			"judge":         func() error { _, err := l.Judge(ctx, who, c, answer, setting.Default()); return err },
			"microscope":    func() error { _, err := l.Microscope(ctx, who, c, answer, 0, false); return err },
			"one step":      func() error { _, err := l.Microscope(ctx, who, c, answer, 0, true); return err },
			"score": func() error {
				_, err := l.Score(ctx, who, c, answer, inspect.Other{}, func(infer.Event) {})
				return err
			},
			"scored token": func() error { _, _, err := l.ScoredToken(ctx, who, c, answer, 0, 1); return err },
			"replay":       func() error { return l.Replay(ctx, who, c, answer) },
		} {
			if err := do(); !errors.Is(err, owned.ErrNotFound) {
				t.Errorf("%s as %+v: %v", name, who, err)
			}
		}
	}
}

func TestReplay_AsksForTheSameAndAddsNothing(t *testing.T) {
	l, c := answered(t)
	before := snapshot(t, c).Messages
	_, first, err := l.chats.Tree(context.Background(), me, c.ID())
	must(t, err)
	_, err = c.SetPanel(context.Background(), me, live.Panel{Settings: setting.Default()}, "another")
	must(t, err)
	must(t, l.Replay(context.Background(), me, c, 0))
	a := l.engine.Next(t)
	want := infer.Request{
		Client: store.OwnerID, CacheScope: store.OwnerID,
		Model: "guide", Messages: a.Request.Messages, Params: setting.Default().Params, MaxTokens: 4, Stop: []string{"#"}, ParseReply: true,
	}
	want.Params.TopK, want.Params.Seed = 7, 42
	if !reflect.DeepEqual(a.Request, want) || len(a.Request.Messages) != 2 || a.Request.Messages[0].Content != "Be brief." || a.Request.Messages[1].Content != "one" {
		t.Errorf("asked for %+v, want %+v", a.Request, want)
	}
	tokens(a, 0, 1, 2)
	end(a, "v1")
	if got, want := replayed(t, c), (live.Replay{Answer: before[1].ID, State: live.ReplayEqual, Equal: 3, Total: 3}); !reflect.DeepEqual(got, want) {
		t.Errorf("the replay is %+v, want %+v", got, want)
	}
	_, last, err := l.chats.Tree(context.Background(), me, c.ID())
	must(t, err)
	if after := snapshot(t, c).Messages; !reflect.DeepEqual(after, before) || !reflect.DeepEqual(last, first) {
		t.Errorf("the chat is another now: %+v, want %+v", after, before)
	}
}

func TestReplay_SaysWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  []int32
		want live.Replay
	}{
		{"another token", []int32{0, 4}, live.Replay{Equal: 1, Was: "[1]", Is: "e"}},
		{"another first token", []int32{5}, live.Replay{Equal: 0, Was: "[0]", Is: "f"}},
		{"an answer that goes on", []int32{0, 1, 2, 3}, live.Replay{Equal: 3, Is: "d"}},
		{"an answer that ends early", []int32{0, 1}, live.Replay{Equal: 2, Was: "[2]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, chat := answered(t)
			must(t, l.Replay(context.Background(), me, chat, 0))
			a := l.engine.Next(t)
			tokens(a, c.ids...)
			if c.want.Is == "" {
				end(a, "v2")
			} else { // the receipt is asked for alone
				receipt := l.engine.Next(t)
				if receipt.Request.MaxTokens != 0 {
					t.Errorf("for the receipt %d tokens are asked for", receipt.Request.MaxTokens)
				}
				end(receipt, "v2")
			}
			c.want.Answer, c.want.State, c.want.Total = last(t, chat).ID, live.ReplayDiffers, 3
			c.want.Changes = []live.Change{{What: "engine", Was: "v1", Is: "v2"}}
			if got := replayed(t, chat); !reflect.DeepEqual(got, c.want) {
				t.Errorf("the replay is %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestReplay_EqualTokensOfAnotherEngineAreSaidToBe(t *testing.T) {
	l, c := answered(t)
	must(t, l.Replay(context.Background(), me, c, 0))
	a := l.engine.Next(t)
	tokens(a, 0, 1, 2)
	end(a, "v2")
	if got := replayed(t, c); got.State != live.ReplayEqual || !reflect.DeepEqual(got.Changes, []live.Change{{What: "engine", Was: "v1", Is: "v2"}}) {
		t.Errorf("the replay is %+v", got)
	}
}

func TestReplay_OfAStoppedAnswerComparesWhatThereIs(t *testing.T) {
	l := newLooking(t)
	c, a := l.ask(t, question("one"))
	tokens(a, 3, 4)
	must(t, c.Stop(context.Background(), me, 0))
	last(t, c)
	must(t, l.Replay(context.Background(), me, c, 0))
	again := l.engine.Next(t)
	if again.Request.MaxTokens != 2 || again.Request.Params.Seed != a.Request.Params.Seed {
		t.Errorf("asked for %+v", again.Request)
	}
	tokens(again, 3, 4)
	end(again, "v1")
	if got := replayed(t, c); got.State != live.ReplayEqual || got.Equal != 2 {
		t.Errorf("the replay is %+v", got)
	}
}

// What a limit of two tokens would make of them, tokens after them may have taken back.
func TestReplay_OfAStoppedAnswerWithBannedStringsLooksNoFurtherThanItsEnd(t *testing.T) {
	l := newLooking(t)
	q := question("one")
	q.Settings.BannedStrings = []string{"x"}
	c, a := l.ask(t, q)
	tokens(a, 3, 4)
	must(t, c.Stop(context.Background(), me, 0))
	last(t, c)
	must(t, l.Replay(context.Background(), me, c, 0))
	again := l.engine.Next(t)
	if again.Request.MaxTokens != q.Settings.MaxTokens {
		t.Errorf("asked for %d tokens", again.Request.MaxTokens)
	}
	tokens(again, 3, 4)
	receipt := l.engine.Next(t)
	end(receipt, "v1")
	if got := replayed(t, c); got.State != live.ReplayEqual || got.Equal != 2 {
		t.Errorf("the replay is %+v", got)
	}
}

func TestReplay_CanBeStoppedAndKeepsOthersOut(t *testing.T) {
	l, c := answered(t)
	must(t, l.Replay(context.Background(), me, c, 0))
	a := l.engine.Next(t)
	tokens(a, 0)
	a.Send(infer.Event{}) // the token is compared by then
	for name, do := range map[string]func() error{
		"send":         func() error { return c.Send(context.Background(), me, question("x")) },
		"answer again": func() error { return c.Regenerate(context.Background(), me, 0, "", setting.Default()) },
		"replay":       func() error { return l.Replay(context.Background(), me, c, 0) },
		"edit":         func() error { return c.Rewrite(context.Background(), me, 0, "x", "") },
	} {
		var conflict *owned.Conflict
		if err := do(); !errors.As(err, &conflict) || conflict.State != owned.Replaying || !strings.Contains(err.Error(), "replayed") {
			t.Errorf("%s during a replay: %v", name, err)
		}
	}
	must(t, c.Stop(context.Background(), me, last(t, c).ID))
	if got := replayed(t, c); got.State != live.ReplayStopped || got.Equal != 1 {
		t.Errorf("the replay is %+v", got)
	}
	var conflict *owned.Conflict
	if err := c.Stop(context.Background(), me, 0); !errors.As(err, &conflict) || conflict.State != owned.Idle {
		t.Errorf("stopped twice: %v", err)
	}
	must(t, c.Send(context.Background(), me, question("two")))
	next := l.engine.Next(t)
	if err := l.Replay(context.Background(), me, c, 2); !errors.As(err, &conflict) {
		t.Errorf("replayed while an answer is written: %v", err)
	}
	next.Finish()
	last(t, c)
	if snapshot(t, c).Replay != nil {
		t.Error("the replay is still there after another answer")
	}
	must(t, l.Replay(context.Background(), me, c, 2))
	l.engine.Next(t)
	must(t, l.chats.Delete(context.Background(), me, c.ID())) // ends it
}

func TestReplay_FailuresAreTheEngines(t *testing.T) {
	l, c := answered(t)
	must(t, l.Replay(context.Background(), me, c, 0))
	gone := &fault.Error{Code: fault.CodeNotFound, Message: "no such model"}
	l.engine.Next(t).Fail(gone)
	if got := replayed(t, c); got.State != live.ReplayFailed || got.Error != gone {
		t.Errorf("the replay is %+v", got)
	}
}

func TestReplay_RefusesWhatHasNoReceipt(t *testing.T) {
	l, c := answered(t)
	must(t, c.Rewrite(context.Background(), me, 0, "by hand", ""))
	var wrong *fault.Error
	for name, answer := range map[string]int64{"an answer by hand": 0, "a question": 1, "nothing": 99} {
		if err := l.Replay(context.Background(), me, c, answer); !errors.As(err, &wrong) || wrong.Param != "answer" {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, c.Send(context.Background(), me, question("two")))
	l.engine.Next(t).Fail(&fault.Error{Code: fault.CodeContext})
	last(t, c)
	if err := l.Replay(context.Background(), me, c, 0); !errors.As(err, &wrong) || wrong.Param != "answer" {
		t.Errorf("an answer without tokens: %v", err)
	}
}

func TestReplay_ReadersAreTold(t *testing.T) {
	l, c := answered(t)
	sub, _, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	must(t, l.Replay(context.Background(), me, c, 0))
	a := l.engine.Next(t)
	tokens(a, 0, 1, 2)
	end(a, "v1")
	replayed(t, c)
	events, err := sub.Take()
	must(t, err)
	if len(events) != 1 || events[0].Type != live.EventReplay || events[0].Replay.State != live.ReplayEqual || events[0].First == events[0].Seq {
		t.Errorf("the readers got %+v, want one event for all", events)
	}
}

// An answer is continued in its tokens; what a person wrote has none, nor has what another
// model did, and is the beginning of the replay too.
func TestContinue_HandsOverTheTokensOfTheAnswer(t *testing.T) {
	l := newLooking(t)
	c, a := l.ask(t, question("one"))
	tokens(a, 0, 1)
	end(a, "v1")
	last(t, c)
	goOn := func(c *live.Chat, prefix []int32, thought, said string) *handlerstest.ScriptedAnswer {
		t.Helper()
		must(t, c.Continue(context.Background(), me, 0, setting.Default()))
		a := l.engine.Next(t)
		last := a.Request.Messages[len(a.Request.Messages)-1]
		if !a.Request.Continue || !slices.Equal(a.Request.ContinuedTokens, prefix) || last.ReasoningContent != thought || last.Content != said {
			t.Errorf("continued with the tokens %d of %+v, want %d of %q and %q", a.Request.ContinuedTokens, last, prefix, thought, said)
		}
		return a
	}
	a = goOn(c, []int32{0, 1}, "", "ab")
	tokens(a, 2)
	end(a, "v1")
	last(t, c)

	must(t, c.Rewrite(context.Background(), me, 0, "", "Hm"))
	a = goOn(c, nil, "Hm", "")
	tokens(a, 3)
	end(a, "v1")
	last(t, c)
	l.chats.Close()

	l.start(t) // what a person wrote is known to the next server too
	c, err := l.chats.Chat(context.Background(), me, c.ID())
	must(t, err)
	must(t, l.Replay(context.Background(), me, c, 0))
	a = l.engine.Next(t)
	if last := a.Request.Messages[1]; !a.Request.Continue || last.ReasoningContent != "Hm" || last.Content != "" || a.Request.ContinuedTokens != nil {
		t.Errorf("replayed behind %+v", a.Request)
	}
	tokens(a, 3)
	end(a, "v1")
	if got := replayed(t, c); got.State != live.ReplayEqual || got.Total != 1 {
		t.Errorf("the replay is %+v", got)
	}
	a = goOn(c, nil, "Hm", "d")
	tokens(a, 4)
	end(a, "v1")
	last(t, c)
	if got := last(t, c); got.Text != "de" || got.Reasoning != "Hm" {
		t.Errorf("it reads %q behind %q", got.Text, got.Reasoning)
	}

	must(t, c.Select(context.Background(), me, 2, 0))
	must(t, l.chats.SetModel(t.Context(), me, c.ID(), "another"))
	a = goOn(c, nil, "", "abc")
	tokens(a, 5)
	end(a, "v1")
	last(t, c)
	must(t, l.Replay(context.Background(), me, c, 0))
	a = l.engine.Next(t)
	if last := a.Request.Messages[1]; last.Content != "abc" || a.Request.MaxTokens != 2 {
		t.Errorf("what another model went on with is replayed behind %+v", a.Request)
	}
	must(t, c.Stop(context.Background(), me, 0))
	replayed(t, c)
}
