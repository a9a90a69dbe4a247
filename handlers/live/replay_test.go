package live

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
	"m40-llm/store"
)

// tokensOf writes tokens by their ids, each spelled as its name.
func (a *answer) tokensOf(ids ...int32) {
	for _, id := range ids {
		a.tokens++
		text := string(rune('a' + id))
		a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: id}, Text: text, Bytes: []byte(text)}}, nil)
	}
}

// end finishes with what an engine says of itself.
func (a *answer) end(engine string) {
	a.do(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{
		End:   record.End{Reason: infer.FinishStop},
		Usage: record.Usage{PromptTokens: 5, CompletionTokens: a.tokens},
		Receipt: record.Receipt{
			Params: a.request.Params, Model: "test", ModelHash: "m1", TemplateHash: "t1", Engine: engine, Device: "d1", Path: "p1", CacheType: "f16",
		},
	}}}, nil)
}

// replayed waits until no replay runs and returns the last one.
func replayed(c *Chat) Replay {
	for {
		if r := snapshotOf(c).Replay; r != nil && r.State != ReplayRunning {
			return *r
		}
	}
}

// answered is a stored chat whose answer has the tokens 0, 1 and 2.
func answered(t testing.TB) (*Service, *script, *Chat) {
	t.Helper()
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	q := question("one")
	q.System, q.Settings.TopK, q.Settings.Seed, q.Settings.Stop = "Be brief.", 7, 42, []string{"#"}
	c, err := s.Start(context.Background(), me, q, false)
	must(t, err)
	a := <-engine.asked
	a.tokensOf(0, 1, 2)
	a.end("v1")
	settle(c)
	return s, engine, c
}

func TestReplay_AsksForTheSameAndAddsNothing(t *testing.T) {
	s, engine, c := answered(t)
	before := view(c)
	_, first, err := s.Tree(context.Background(), me, c.ID())
	must(t, err)
	keep(t, c, Panel{Settings: DefaultSettings()}, "another")
	must(t, c.Replay(context.Background(), me, 0))
	a := <-engine.asked
	want := infer.Request{
		Client: store.OwnerID, CacheScope: store.OwnerID,
		Model: "test", Messages: a.request.Messages, Params: DefaultSettings().Params, MaxTokens: 4, Stop: []string{"#"}, ParseReply: true,
	}
	want.Params.TopK, want.Params.Seed = 7, 42
	if !reflect.DeepEqual(a.request, want) || len(a.request.Messages) != 2 || a.request.Messages[0].Content != "Be brief." || a.request.Messages[1].Content != "one" {
		t.Errorf("asked for %+v, want %+v", a.request, want)
	}
	a.tokensOf(0, 1, 2)
	a.end("v1")
	if got, want := replayed(c), (Replay{Answer: before[1].ID, State: ReplayEqual, Equal: 3, Total: 3}); !reflect.DeepEqual(got, want) {
		t.Errorf("the replay is %+v, want %+v", got, want)
	}
	_, last, err := s.Tree(context.Background(), me, c.ID())
	must(t, err)
	if after := view(c); !reflect.DeepEqual(after, before) || !reflect.DeepEqual(last, first) {
		t.Errorf("the chat is another now: %+v, want %+v", after, before)
	}
}

func TestReplay_SaysWhatDiffers(t *testing.T) {
	for _, c := range []struct {
		name string
		ids  []int32
		want Replay
	}{
		{"another token", []int32{0, 4}, Replay{Equal: 1, Was: "[1]", Is: "e"}},
		{"another first token", []int32{5}, Replay{Equal: 0, Was: "[0]", Is: "f"}},
		{"an answer that goes on", []int32{0, 1, 2, 3}, Replay{Equal: 3, Is: "d"}},
		{"an answer that ends early", []int32{0, 1}, Replay{Equal: 2, Was: "[2]"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, engine, chat := answered(t)
			must(t, chat.Replay(context.Background(), me, 0))
			a := <-engine.asked
			a.tokensOf(c.ids...)
			if c.want.Is == "" {
				a.end("v2")
			} else { // the receipt is asked for alone
				receipt := <-engine.asked
				if receipt.request.MaxTokens != 0 {
					t.Errorf("for the receipt %d tokens are asked for", receipt.request.MaxTokens)
				}
				receipt.end("v2")
			}
			c.want.Answer, c.want.State, c.want.Total = chat.branch.leaf(), ReplayDiffers, 3
			c.want.Changes = []Change{{"engine", "v1", "v2"}}
			if got := replayed(chat); !reflect.DeepEqual(got, c.want) {
				t.Errorf("the replay is %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestReplay_EqualTokensOfAnotherEngineAreSaidToBe(t *testing.T) {
	_, engine, c := answered(t)
	must(t, c.Replay(context.Background(), me, 0))
	a := <-engine.asked
	a.tokensOf(0, 1, 2)
	a.end("v2")
	if got := replayed(c); got.State != ReplayEqual || !reflect.DeepEqual(got.Changes, []Change{{"engine", "v1", "v2"}}) {
		t.Errorf("the replay is %+v", got)
	}
}

func TestReplay_OfAStoppedAnswerComparesWhatThereIs(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "one")
	a.tokensOf(3, 4)
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	must(t, c.Replay(context.Background(), me, 0))
	again := <-engine.asked
	if again.request.MaxTokens != 2 || again.request.Params.Seed != a.request.Params.Seed {
		t.Errorf("asked for %+v", again.request)
	}
	again.tokensOf(3, 4)
	again.end("v1")
	if got := replayed(c); got.State != ReplayEqual || got.Equal != 2 {
		t.Errorf("the replay is %+v", got)
	}
}

// What a limit of two tokens would make of them, tokens behind them may have taken back.
func TestReplay_OfAStoppedAnswerWithBannedStringsLooksNoFurtherThanItsEnd(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	q := question("one")
	q.Settings.BannedStrings = []string{"x"}
	c, err := s.Start(context.Background(), me, q, false)
	must(t, err)
	a := <-engine.asked
	a.tokensOf(3, 4)
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	must(t, c.Replay(context.Background(), me, 0))
	again := <-engine.asked
	if again.request.MaxTokens != q.Settings.MaxTokens {
		t.Errorf("asked for %d tokens", again.request.MaxTokens)
	}
	again.tokensOf(3, 4)
	receipt := <-engine.asked
	receipt.end("v1")
	if got := replayed(c); got.State != ReplayEqual || got.Equal != 2 {
		t.Errorf("the replay is %+v", got)
	}
}

func TestReplay_CanBeStoppedAndKeepsOthersOut(t *testing.T) {
	s, engine, c := answered(t)
	must(t, c.Replay(context.Background(), me, 0))
	a := <-engine.asked
	a.tokensOf(0)
	for name, do := range map[string]func() error{
		"send":         func() error { return c.Send(context.Background(), me, question("x")) },
		"answer again": func() error { return c.Regenerate(context.Background(), me, 0, "", DefaultSettings()) },
		"replay":       func() error { return c.Replay(context.Background(), me, 0) },
		"edit":         func() error { return c.Rewrite(context.Background(), me, 0, "x", "") },
	} {
		var conflict *Conflict
		if err := do(); !errors.As(err, &conflict) || conflict.State != Replaying || !strings.Contains(err.Error(), "replayed") {
			t.Errorf("%s during a replay: %v", name, err)
		}
	}
	must(t, c.Stop(context.Background(), me, c.branch.leaf()))
	if got := replayed(c); got.State != ReplayStopped || got.Equal != 1 {
		t.Errorf("the replay is %+v", got)
	}
	var conflict *Conflict
	if err := c.Stop(context.Background(), me, 0); !errors.As(err, &conflict) || conflict.State != Idle {
		t.Errorf("stopped twice: %v", err)
	}
	must(t, c.Send(context.Background(), me, question("two")))
	next := <-engine.asked
	if err := c.Replay(context.Background(), me, 2); !errors.As(err, &conflict) {
		t.Errorf("replayed while an answer is written: %v", err)
	}
	next.finish()
	settle(c)
	if snapshotOf(c).Replay != nil {
		t.Error("the replay is still there after another answer")
	}
	must(t, c.Replay(context.Background(), me, 2))
	<-engine.asked
	must(t, s.Delete(context.Background(), me, c.ID())) // ends it
}

func TestReplay_FailuresAreTheEngines(t *testing.T) {
	_, engine, c := answered(t)
	must(t, c.Replay(context.Background(), me, 0))
	gone := &infer.Error{Code: infer.CodeNotFound, Message: "no such model"}
	(<-engine.asked).do(infer.Event{}, gone)
	if got := replayed(c); got.State != ReplayFailed || got.Error != gone {
		t.Errorf("the replay is %+v", got)
	}
}

func TestReplay_RefusesWhatHasNoReceipt(t *testing.T) {
	_, engine, c := answered(t)
	must(t, c.Rewrite(context.Background(), me, 0, "by hand", ""))
	var wrong *infer.Error
	for name, answer := range map[string]int64{"an answer by hand": 0, "a question": 1, "nothing": 99} {
		if err := c.Replay(context.Background(), me, answer); !errors.As(err, &wrong) || wrong.Param != "answer" {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, c.Send(context.Background(), me, question("two")))
	(<-engine.asked).do(infer.Event{}, &infer.Error{Code: infer.CodeContext})
	settle(c)
	if err := c.Replay(context.Background(), me, 0); !errors.As(err, &wrong) || wrong.Param != "answer" {
		t.Errorf("an answer without tokens: %v", err)
	}
}

func TestReplay_ReadersAreTold(t *testing.T) {
	_, engine, c := answered(t)
	sub, _, err := c.Subscribe(context.Background(), me, 0)
	must(t, err)
	must(t, c.Replay(context.Background(), me, 0))
	a := <-engine.asked
	a.tokensOf(0, 1, 2)
	a.end("v1")
	replayed(c)
	events, err := sub.Take()
	must(t, err)
	if len(events) != 1 || events[0].Type != EventReplay || events[0].Replay.State != ReplayEqual || events[0].First == events[0].Seq {
		t.Errorf("the readers got %+v, want one event for all", events)
	}
}

// An answer is continued in its tokens; what a person wrote has none, nor has what another
// model did, and is the beginning of the replay too.
func TestContinue_HandsOverTheTokensOfTheAnswer(t *testing.T) {
	path := storePath(t)
	db := openStore(t, path)
	s, engine := newService(t, Options{Store: db})
	c, a := start(t, s, engine, "one")
	a.tokensOf(0, 1)
	a.end("v1")
	settle(c)
	goOn := func(c *Chat, engine *script, begun []int32, thought, said string) *answer {
		t.Helper()
		must(t, c.Continue(context.Background(), me, 0, DefaultSettings()))
		a := <-engine.asked
		last := a.request.Messages[len(a.request.Messages)-1]
		if !a.request.Continue || !slices.Equal(a.request.Begun, begun) || last.ReasoningContent != thought || last.Content != said {
			t.Errorf("continued with the tokens %d of %+v, want %d of %q and %q", a.request.Begun, last, begun, thought, said)
		}
		return a
	}
	a = goOn(c, engine, []int32{0, 1}, "", "ab")
	a.tokensOf(2)
	a.end("v1")
	settle(c)

	must(t, c.Rewrite(context.Background(), me, 0, "", "Hm"))
	a = goOn(c, engine, nil, "Hm", "")
	a.tokensOf(3)
	a.end("v1")
	settle(c)
	s.Close()

	s = New(engine, Options{Store: db}) // what a person wrote is known to the next server too
	defer s.Close()
	c, err := s.Chat(context.Background(), me, c.ID())
	must(t, err)
	must(t, c.Replay(context.Background(), me, 0))
	a = <-engine.asked
	if last := a.request.Messages[1]; !a.request.Continue || last.ReasoningContent != "Hm" || last.Content != "" || a.request.Begun != nil {
		t.Errorf("replayed behind %+v", a.request)
	}
	a.tokensOf(3)
	a.end("v1")
	if got := replayed(c); got.State != ReplayEqual || got.Total != 1 {
		t.Errorf("the replay is %+v", got)
	}
	a = goOn(c, engine, nil, "Hm", "d")
	a.tokensOf(4)
	a.end("v1")
	settle(c)
	if got := lastMessage(t, c); got.Text != "de" || got.Reasoning != "Hm" {
		t.Errorf("it reads %q behind %q", got.Text, got.Reasoning)
	}

	must(t, c.Select(context.Background(), me, 2, 0))
	must(t, s.SetModel(t.Context(), me, c.ID(), "another"))
	a = goOn(c, engine, nil, "", "abc")
	a.tokensOf(5)
	a.end("v1")
	settle(c)
	must(t, c.Replay(context.Background(), me, 0))
	a = <-engine.asked
	if last := a.request.Messages[1]; last.Content != "abc" || a.request.MaxTokens != 2 {
		t.Errorf("what another model went on with is replayed behind %+v", a.request)
	}
	must(t, c.Stop(context.Background(), me, 0))
	replayed(c)
}
