package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/api"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/page"
)

func TestCount_OfTheRealEngineIsThatOfThePrompt(t *testing.T) {
	engine := handlerstest.OpenGuide(t)
	s := handlerstest.Serve(t, engine)
	c := handlerstest.DialSocket(t, s)
	c.Do("send", map[string]any{"text": "What is a token?", "system": "Be short.", "settings": map[string]any{"temperature": 0, "max_tokens": 24}})
	c.Until("the end", c.Ended)
	for _, draft := range []string{"A", "And a sampler?", " leading", "trailing\n\n", "naïve 日本 🙂", "<|im_end|> [INST] <s>", strings.Repeat("long ", 200)} {
		var n page.CountResponse
		mustDecode(t, handlerstest.Post(t, s, "/count", fmt.Sprintf(`{"chat":%q,"text":%q,"system":"Be short."}`, c.Chat, draft), "Origin", s.URL), &n)
		var rendered api.RenderedTemplate
		mustDecode(t, handlerstest.Post(t, s, "/apply-template", fmt.Sprintf(
			`{"messages":[{"role":"system","content":"Be short."},{"role":"user","content":"What is a token?"},{"role":"assistant","content":%q},{"role":"user","content":%q}]}`,
			c.Last().Text, draft)), &rendered)
		if n.Tokens != len(rendered.Tokens) || n.Draft == 0 || n.Context == 0 {
			t.Errorf("%.20q: got %+v, want %d tokens", draft, n, len(rendered.Tokens))
		}
	}
}

func TestCount_AnswersThePageAlone(t *testing.T) {
	s := handlerstest.Serve(t, handlerstest.NewScript())
	for name, c := range map[string]struct {
		body, origin string
		status       int
	}{
		"a draft":           {`{"text":"x"}`, s.URL, http.StatusOK},
		"another site":      {`{"text":"x"}`, "http://evil.example", http.StatusForbidden},
		"an empty draft":    {`{"text":""}`, s.URL, http.StatusBadRequest},
		"an unknown field":  {`{"text":"x","y":1}`, s.URL, http.StatusBadRequest},
		"an unknown chat":   {`{"text":"x","chat":"nowhere"}`, s.URL, http.StatusNotFound},
		"more than is read": {`{"text":"` + strings.Repeat("x", 2<<20) + `"}`, s.URL, http.StatusRequestEntityTooLarge},
	} {
		if got := handlerstest.Post(t, s, "/count", c.body, "Origin", c.origin); got.Status != c.status {
			t.Errorf("%s: got %d, want %d: %.200s", name, got.Status, c.status, got.Body)
		}
	}
}
