package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"m40-llm/handlers/setting"
	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/record"
	"m40-llm/infer/sample"
)

// writeIDs writes tokens whose texts are their ids.
func (a *answer) writeIDs(ids ...int32) {
	for _, id := range ids {
		a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Text: spellID(id), Choice: sample.Choice{ID: id, Row: []byte{byte(id)}}}}, nil)
	}
}

func spellID(id int32) string { return fmt.Sprintf("<%d>", id) }

// count returns the ids from first to last.
func count(first, last int32) (ids []int32) {
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func spellIDs(ids []int32) (text string) {
	for _, id := range ids {
		text += spellID(id)
	}
	return text
}

func TestRewindGoesOnBehindTheFirstTokensInAnotherVersion(t *testing.T) {
	for _, stored := range []bool{false, true} {
		opt := Options{}
		if stored {
			opt.Store = openStore(t, storePath(t))
		}
		s, engine := newService(t, opt)
		c, err := s.Start(context.Background(), me, question("Count."), !stored)
		must(t, err)
		a := <-engine.asked
		a.writeIDs(count(1, 100)...)
		first := lastMessage(t, c)
		settings := setting.Default()
		settings.DryMultiplier = 0.8
		rewound := make(chan error, 1)
		go func() { rewound <- c.Rewind(context.Background(), me, first.ID, 60, Next{}, settings) }() // it runs
		b := <-engine.asked
		must(t, <-rewound)
		r := b.request
		if last := r.Messages[len(r.Messages)-1]; !slices.Equal(r.ContinuedTokens, count(1, 60)) || last.Content != spellIDs(count(1, 60)) || !r.Continue {
			t.Fatalf("the engine continues %q in the tokens %d", last.Content, r.ContinuedTokens)
		}
		if r.Params.DryMultiplier != 0.8 || r.Params.Seed != a.request.Params.Seed {
			t.Errorf("the engine continues with DRY %g and seed %d, want 0.8 and %d", r.Params.DryMultiplier, r.Params.Seed, a.request.Params.Seed)
		}
		b.writeIDs(count(201, 210)...)
		b.finish()
		settle(c)
		m := lastMessage(t, c)
		if want := append(count(1, 60), count(201, 210)...); m.Text != spellIDs(want) || m.Version != 2 || m.Answer.Settings.DryMultiplier != 0.8 {
			t.Errorf("version %d of the answer is %q", m.Version, m.Text)
		}
		if snapshot := snapshotOf(c); snapshot.Panel.DryMultiplier != 0.8 || snapshot.Panel.Seed != -1 {
			t.Errorf("the panel has DRY %g and seed %d", snapshot.Panel.DryMultiplier, snapshot.Panel.Seed)
		}
		if stored {
			s.unloadAll()
			c, err = s.Chat(context.Background(), me, c.ID())
			must(t, err)
		}
		tokens, err := c.StoredTokens(context.Background(), me, m.ID, nil)
		must(t, err)
		if want := append(count(1, 60), count(201, 210)...); !slices.Equal(tokens.IDs, want) {
			t.Fatalf("its tokens are %d", tokens.IDs)
		}
		for i, id := range tokens.IDs {
			if row := tokens.Rows[i].Row; len(row) != 1 || row[0] != byte(id) {
				t.Errorf("the row of token %d is %d, want that of %d", i, row, id)
			}
		}
		must(t, c.Select(context.Background(), me, first.ID, 0))
		if old := lastMessage(t, c); old.Text != spellIDs(count(1, 100)) || old.Answer.State != Stopped {
			t.Errorf("the version before is %q, %s", old.Text, old.Answer.State)
		}
		for _, keep := range []int{-1, 100, 1 << 40} {
			var wrong *fault.Error
			if err := c.Rewind(context.Background(), me, first.ID, keep, Next{}, settings); !errors.As(err, &wrong) || wrong.Param != "keep" {
				t.Errorf("keeping %d tokens of 100 gives %v", keep, err)
			}
		}
	}
}

// endAt ends an answer as the model or a stop string does.
func (a *answer) endAt(stopString string) {
	end := record.End{Reason: infer.FinishStop, StopString: stopString}
	a.do(infer.Event{Type: infer.EventDone, Done: &infer.Done{Answer: record.Answer{End: end, Receipt: record.Receipt{Params: a.request.Params}}}}, nil)
}

func TestAnAnswerGoesOnPastItsEnd(t *testing.T) {
	s, engine := newService(t, Options{Store: openStore(t, storePath(t))})
	c, a := start(t, s, engine, "Count.")
	past := func() *answer {
		t.Helper()
		settle(c)
		must(t, c.ContinuePastEnd(context.Background(), me, 0, setting.Default()))
		return <-engine.asked
	}
	a.writeIDs(1, 2, 3)
	a.endAt("")
	a = past()
	if r := a.request; !slices.Equal(r.ContinuedTokens, count(1, 3)) || !slices.Equal(r.BannedEnds, []int{0}) {
		t.Fatalf("the engine continues %d with the ends %d banned", r.ContinuedTokens, r.BannedEnds)
	}
	a.writeIDs(4, 5)
	a.endAt("")
	a = past()
	if r := a.request; !slices.Equal(r.ContinuedTokens, count(1, 5)) || !slices.Equal(r.BannedEnds, []int{0}) {
		t.Fatalf("the second time the engine continues %d with the ends %d banned", r.ContinuedTokens, r.BannedEnds)
	}
	a.writeIDs(6)
	must(t, c.Stop(context.Background(), me, 0))
	settle(c)
	var wrong *fault.Error
	if err := c.ContinuePastEnd(context.Background(), me, 0, setting.Default()); !errors.As(err, &wrong) || wrong.Param != "past_end" {
		t.Errorf("an answer that a person stopped goes on past its end: %v", err)
	}
	s.unloadAll()
	c, err := s.Chat(context.Background(), me, c.ID())
	must(t, err)
	recipe, err := c.Recipe(context.Background(), me, 0)
	if err != nil || !slices.Equal(recipe.BannedEnds, []int{3, 5}) {
		t.Errorf("all of it is written again with the ends %d banned, %v; want 3 and 5", recipe.BannedEnds, err)
	}
}

func TestAnAnswerGoesOnWithoutTheStopStringThatEndedIt(t *testing.T) {
	s, engine := newService(t, Options{})
	q := question("Count.")
	q.Settings.Stop = []string{spellID(3), "never"}
	c, err := s.Start(context.Background(), me, q, true)
	must(t, err)
	a := <-engine.asked
	a.writeIDs(1, 2)
	a.do(infer.Event{Type: infer.EventToken, Token: &infer.Token{Choice: sample.Choice{ID: 3}}}, nil) // its text is not sent
	a.endAt(spellID(3))
	settle(c)
	must(t, c.ContinuePastEnd(context.Background(), me, 0, q.Settings))
	a = <-engine.asked
	if r := a.request; !slices.Equal(r.Stop, []string{"never"}) || !slices.Equal(r.ContinuedTokens, count(1, 3)) || r.Messages[1].Content != "<1><2><3>" || len(r.BannedEnds) > 0 {
		t.Errorf("the engine continues %q with the stop strings %q", r.Messages[1].Content, r.Stop)
	}
	a.writeIDs(4)
	a.endAt("")
	settle(c)
	if m := lastMessage(t, c); m.Text != "<1><2><3><4>" {
		t.Errorf("the answer is %q", m.Text)
	}
	if snapshot := snapshotOf(c); !slices.Equal(snapshot.Panel.Stop, q.Settings.Stop) {
		t.Errorf("the next answer has the stop strings %q", snapshot.Panel.Stop)
	}
}

func TestAnAnswerInALoopIsPausedWhereThatIsAsked(t *testing.T) {
	unit := count(1, 12)
	for _, pause := range []int{0, 1} {
		s, engine := newService(t, Options{})
		q := question("Loop.")
		q.Settings.PauseRepetition = pause
		c, err := s.Start(context.Background(), me, q, true)
		must(t, err)
		a := <-engine.asked
		for range 20 {
			a.writeIDs(unit...)
		}
		if pause == 0 {
			if m := lastMessage(t, c); m.Answer.State != Writing || m.Answer.Repeated != 19*12 {
				t.Errorf("it is %s with %d tokens repeated", m.Answer.State, m.Answer.Repeated)
			}
			a.writeIDs(99)
			a.finish()
			settle(c)
			if m := lastMessage(t, c); m.Answer.Repeated != 0 {
				t.Errorf("behind the loop %d tokens are repeated", m.Answer.Repeated)
			}
			continue
		}
		settle(c)
		m := lastMessage(t, c)
		if m.Answer.State != Stopped || m.Answer.Reason != infer.FinishRepetition || m.Answer.Repeated != repeatedTokens || m.Answer.Usage.CompletionTokens != repeatedTokens+12 {
			t.Fatalf("it ended as %s, %q, at %d with %d tokens repeated", m.Answer.State, m.Answer.Reason, m.Answer.Usage.CompletionTokens, m.Answer.Repeated)
		}
		must(t, c.Continue(context.Background(), me, 0, q.Settings))
		a = <-engine.asked
		a.writeIDs(1, 2, 3)
		if m := lastMessage(t, c); m.Answer.State != Writing || m.Answer.Repeated != repeatedTokens+3 {
			t.Errorf("a person lets it go on, and it is %s with %d tokens repeated", m.Answer.State, m.Answer.Repeated)
		}
		a.finish()
		settle(c)
	}
}

// repeatedTokens is how many tokens package repetition wants to see again before it calls an answer repetitive.
const repeatedTokens = 96
