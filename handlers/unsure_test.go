package handlers_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
)

// A page asks for the least certain token of an answer in view, which may have given way to another version meanwhile.
func TestTheLeastCertainTokenOfAnAnswerThatIsNotShownAnyMoreIsNone(t *testing.T) {
	engine := handlerstest.NewScript()
	server, _ := handlerstest.ServeStored(t, engine)
	c := handlerstest.DialSocket(t, server)
	// write writes an answer that comes after another one, and returns it.
	write := func(before int64) int64 {
		t.Helper()
		a := engine.Next(t)
		a.WriteSampled(t, rand.New(rand.NewPCG(7, 8)), "One ", "two")
		a.Finish()
		c.Until("the answer ends", func() bool { return len(c.Branch) == 2 && c.Branch[1] != before && c.Ended() })
		return c.Branch[1]
	}
	unsure := func(answer int64) handlerstest.Response {
		return handlerstest.Call(t, server, http.MethodGet, fmt.Sprintf("/c/%s/tokens/%d/unsure", c.Chat, answer), "", "Accept", "application/json")
	}
	c.Do("send", map[string]any{"text": "hello"})
	first := write(0)
	if got := unsure(first); got.Status != http.StatusOK || strings.Contains(got.Body, `"candidates":null`) {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	c.Do("regenerate", map[string]any{"answer": first})
	second := write(first)
	if got := unsure(first); got.Status != http.StatusOK || !strings.Contains(got.Body, `"candidates":null`) {
		t.Errorf("of the version before: %d %s", got.Status, got.Body)
	}
	c.Do("rewrite", map[string]any{"answer": second, "text": "Three"})
	c.Until("the other text", func() bool { return c.Branch[1] != second })
	if got := unsure(c.Branch[1]); got.Status != http.StatusOK || !strings.Contains(got.Body, `"candidates":null`) {
		t.Errorf("of an answer that a person wrote: %d %s", got.Status, got.Body)
	}
}
