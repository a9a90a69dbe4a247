package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
	"m40-llm/handlers/view"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/sample"
)

// The way of a token through the samplers, from its stored candidates or by one step of the model, is
// what the sampler reported when the token was drawn.
func TestStagesOfATokenAreThoseThatTheSamplerReported(t *testing.T) {
	guide := &recordingEngine{Engine: handlerstest.OpenGuide(t)}
	server, chats := handlerstest.ServeStored(t, guide)
	c := handlerstest.DialSocket(t, server)
	random := rand.New(rand.NewPCG(21, 22))
	answers := 4
	if fixtures.Torture() {
		answers = 500
	}
	sources, tokens := map[inspect.Source]int{}, 0
	for n := range answers {
		settings := drawCuts(random)
		delete(settings, "banned_strings")
		if n == 0 { // the penalties of the prompt's tokens are not stored
			settings["repeat_penalty"], settings["repeat_last_n"], settings["dry_multiplier"] = 1.2, -1, 0.8
		}
		seq := c.Seq
		guide.choices = nil
		c.Do("send", map[string]any{"text": fmt.Sprintf("Tell me a story about %d foxes.", n), "settings": settings})
		c.Until("the end", func() bool { return len(c.Branch) == 2*n+2 && c.Ended() && c.Seq > seq })
		chat, err := chats.Chat(t.Context(), access.Local, c.Chat)
		if err != nil {
			t.Fatal(err)
		}
		reported := guide.choices
		for i := range reported {
			for _, ask := range []bool{false, true} {
				if ask && i%8 != 0 {
					continue
				}
				m, err := inspect.New(chats).Microscope(t.Context(), access.Local, chat, c.Branch[2*n+1], i, ask)
				if err != nil {
					t.Fatal(err)
				}
				if !ask && m.Source == "" && !m.NeedsAsk {
					t.Fatalf("token %d: %s", i, m.Reason)
				}
				sources[m.Source]++
				if m.Source == "" {
					continue
				}
				tokens++
				if err := sameStages(*m.Choice, reported[i]); err != nil {
					t.Fatalf("answer %d, token %d, from %s: %s, with %v", n, i, m.Source, err, settings)
				}
				if got := m.Choice.Followed[0][0]; math.Abs(got-math.Exp(reported[i].LogProb)) > 1e-9 && got >= 0 {
					t.Fatalf("the model gave the token %g, want %g", got, math.Exp(reported[i].LogProb))
				}
			}
		}
	}
	t.Logf("%d tokens, from %v", tokens, sources)
	if sources[inspect.SourceStored] == 0 || sources[inspect.SourceModel] == 0 || sources[""] == 0 {
		t.Error("the test needs tokens of each source, and some whose stored candidates do not suffice")
	}
}

// recordingEngine remembers what the sampler reported of the tokens of chats.
type recordingEngine struct {
	handlers.Engine
	choices []sample.Choice
}

func (e *recordingEngine) Generate(ctx context.Context, r infer.Request) iter.Seq2[infer.Event, error] {
	return func(yield func(infer.Event, error) bool) {
		for event, err := range e.Engine.Generate(ctx, r) {
			if event.Token != nil && r.Rows {
				e.choices = append(e.choices, event.Token.Choice)
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// sameStages returns how the stages of a choice differ from those of another.
func sameStages(got, want sample.Choice) error {
	if got.ID != want.ID || len(got.Stages) != len(want.Stages) {
		return fmt.Errorf("got token %d, %+v, want %d, %+v", got.ID, got.Stages, want.ID, want.Stages)
	}
	for i, s := range got.Stages {
		if w := want.Stages[i]; s.Name != w.Name || s.Kept != w.Kept || math.Abs(s.Removed-w.Removed) > 1e-9 {
			return fmt.Errorf("stage %d is %+v, want %+v", i, s, w)
		}
	}
	return nil
}

func TestStagesOfATokenSayWhyTheyAreNotKnown(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "Go.", "settings": map[string]any{"seed": 1, "temperature": 0}})
	a := engine.Next(t)
	a.WriteSampled(t, rand.New(rand.NewPCG(1, 2)), "One")
	a.Write("two")
	a.Finish()
	c.Until("the end", func() bool { return len(c.Branch) == 2 && c.Ended() })
	get := func(index string) (int, view.Stages, string) {
		r := handlerstest.Call(t, server, http.MethodGet, fmt.Sprintf("/c/%s/tokens/%d/%s/stages", c.Chat, c.Branch[1], index), "")
		var v view.Stages
		_ = json.Unmarshal([]byte(r.Body), &v)
		return r.Status, v, r.Body
	}
	if status, v, body := get("0"); status != http.StatusOK || v.Source != inspect.SourceStored || len(v.Stages) != 2 || v.Tokens[0].P[0] <= 0 || v.Drawn == nil {
		t.Errorf("token 0: status %d: %s", status, body)
	}
	if status, v, body := get("1"); status != http.StatusOK || v.Source != "" || !v.Ask || !strings.Contains(v.Reason, "not stored") {
		t.Errorf("token 1, whose row is missing: status %d: %s", status, body)
	}
	for _, index := range []string{"2", "-1", "x"} {
		if status, _, body := get(index); status != http.StatusBadRequest {
			t.Errorf("token %s: status %d: %s", index, status, body)
		}
	}
}
