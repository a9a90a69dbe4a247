package handlers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/inspect"
	"m40-llm/infer/fixtures"
)

// drawCuts returns random settings of the samplers that remove candidates, and of the temperature.
func drawCuts(random *rand.Rand) map[string]any {
	one := func(values ...float64) float64 { return values[random.IntN(len(values))] }
	return map[string]any{
		"max_tokens": 24, "seed": 5, "temperature": one(0, 0.3, 0.7, 1, 1.3, 2), "top_k": int(one(0, 1, 3, 20, 40)), "top_p": one(0.3, 0.7, 0.9, 0.95, 1),
		"min_p": one(0, 0.01, 0.05, 0.2), "typical_p": one(0.5, 0.9, 1, 1), "xtc_probability": one(0, 0, 0.5), "top_n_sigma": one(0, 0, 1.5),
		"repeat_penalty": one(1.1, 1.1, 1, 1.3), "presence_penalty": one(0, 0, 0.4), "repeat_last_n": int(one(64, 64, 8, -1)),
		"dry_multiplier": one(0, 0, 0.8), "banned_strings": []string{"and"},
	}
}

// penalties returns those of some settings.
func penalties(settings map[string]any) string {
	return fmt.Sprint(settings["repeat_penalty"], settings["presence_penalty"], settings["repeat_last_n"], settings["dry_multiplier"])
}

// A verdict names the first token that differs when the model answers again with the other settings
// and the same seed.
func TestVerdicts_NameTheTokenThatAnotherAnswerDiffersIn(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	c := handlerstest.DialSocket(t, server)
	random := rand.New(rand.NewPCG(11, 12))
	count := 12
	if fixtures.Torture() {
		count = 1000
	}
	drawn := drawCuts(random)
	c.Do("send", map[string]any{"text": "Tell me a story about a fox.", "settings": drawn})
	c.Until("the end", func() bool { return len(c.Branch) == 2 && c.Ended() })
	chat, err := chats.Chat(t.Context(), access.Local, c.Chat)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(answer int64) (ids []int32) {
		list, _, err := inspect.New(chats).Tokens(t.Context(), access.Local, chat, answer, 0, 1000, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range list {
			ids = append(ids, token.ID)
		}
		return ids
	}
	compared, diverged, penalised := 0, 0, 0
	for range count {
		answer := c.Branch[1]
		was, settings, seq := ids(answer), drawCuts(random), c.Seq
		changed := penalties(settings) != penalties(drawn)
		drawn = settings
		body, _ := json.Marshal(settings)
		r := handlerstest.PostScripted(t, server, "/c/"+c.Chat+"/tokens/"+strconv.FormatInt(answer, 10)+"/judge", string(body))
		if r.Status != http.StatusOK {
			t.Fatalf("status %d: %s", r.Status, r.Body)
		}
		var v inspect.Verdict
		if err := json.Unmarshal([]byte(r.Body), &v); err != nil {
			t.Fatal(err)
		}
		c.Do("regenerate", map[string]any{"answer": answer, "settings": settings})
		c.Until("the end", func() bool { return c.Ended() && c.Seq > seq && c.Branch[1] != answer })
		is := ids(c.Branch[1])
		first := 0
		for first < min(len(was), len(is)) && was[first] == is[first] {
			first++
		}
		known := first == len(was) || v.After[first] >= 0 && !slices.Contains(v.After[:first], -1)
		if !known {
			continue // the rows of the tokens do not suffice
		}
		compared++
		if changed {
			penalised++
		}
		switch {
		case first < min(len(was), len(is)):
			diverged++
			if v.Diverges != first {
				t.Errorf("the verdict on %s is that token %d differs, but token %d does: %v, %v", body, v.Diverges, first, was, is)
			}
		case first == len(was) && v.Diverges >= 0:
			t.Errorf("the verdict on %s is that token %d differs, but none does: %v", body, v.Diverges, was)
		}
		for i, p := range v.After[:first] {
			if p == 0 {
				t.Errorf("the verdict on %s is that token %d is impossible, but it was drawn again", body, i)
			}
		}
	}
	t.Logf("%d of %d answers were compared, %d of which differ, and %d have other penalties", compared, count, diverged, penalised)
	if compared < count/2 || diverged < count/4 || penalised < count/4 {
		t.Errorf("%d of %d answers could be compared, %d of which differ", compared, count, diverged)
	}
}

func TestVerdicts_SayWhyOnlyTheModelCanTell(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := handlerstest.DialSocket(t, server)
	c.Do("send", map[string]any{"text": "Go.", "settings": map[string]any{"seed": 1}})
	a := engine.Next(t)
	a.WriteSampled(t, rand.New(rand.NewPCG(1, 2)), "One", "two")
	a.Finish()
	c.Until("the end", func() bool { return len(c.Branch) == 2 && c.Ended() })
	for _, tc := range []struct {
		body   string
		status int
		says   string
	}{
		{`{"top_p":0.5}`, 200, `"diverges"`}, {`{"repeat_penalty":1.2}`, 200, "its prompt has changed since"}, {`{"mirostat":2}`, 200, "Only a new answer can show"},
		{`{"samplers":["top_k","penalties"]}`, 200, `"after":[0`}, // which are off
		{`{"top_p":2}`, 400, "top_p"}, {`{"unknown":1}`, 400, "unknown"}, {`[]`, 400, ""},
	} {
		r := handlerstest.PostScripted(t, server, "/c/"+c.Chat+"/tokens/"+strconv.FormatInt(c.Branch[1], 10)+"/judge", tc.body)
		if r.Status != tc.status || !strings.Contains(r.Body, tc.says) {
			t.Errorf("%s: status %d, want %d, with %q: %s", tc.body, r.Status, tc.status, tc.says, r.Body)
		}
	}
}
