package handlers_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/page"
	"m40-llm/infer/fault"
)

// The real engine writes the same again, and a receipt that was tampered with is found.
func TestRealEngine_Replay(t *testing.T) {
	server, _ := handlerstest.ServeStored(t, handlerstest.OpenGuide(t))
	c := handlerstest.DialSocket(t, server)
	turns := 0
	ask := func(text string, settings map[string]any) {
		c.Do("send", map[string]any{"text": text, "system": "Be kind.", "settings": settings})
		turns += 2
		c.Until("the end", func() bool { return len(c.Branch) == turns && c.Ended() })
	}
	hot := map[string]any{"temperature": 1.3, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1.2, "repeat_last_n": -1,
		"presence_penalty": 0.3, "frequency_penalty": -0.1, "typical_p": 0.9, "stop": []string{"zzz"}, "max_tokens": 24,
		"banned_strings": []string{"the", "a", " I"}, "xtc_probability": 0.3, "dry_multiplier": 0.8, "dynatemp_range": 0.4, "seed": 5, "samplers": []string{"dry", "top_p", "xtc", "temperature"}}
	ask("Tell me a story about a fox.", hot)
	ask("And then?", map[string]any{"max_tokens": 7, "seed": 6})
	for i, id := range []int64{c.Branch[1], c.Branch[3]} {
		got := c.ReplayOf(id)
		if got.State != live.ReplayEqual || got.Equal != got.Total || got.Total == 0 || len(got.Changes) != 0 {
			t.Errorf("answer %d, replayed: %+v", i+1, got)
		}
	}

	// One that a limit ended goes on as if it had not ended, and is replayed as one. It may
	// have nothing more to say.
	short, seq := len(c.Last().Text), c.Seq
	c.Do("continue", map[string]any{"answer": c.Branch[3], "settings": map[string]any{"max_tokens": 30, "seed": -1}})
	c.Until("the end", func() bool { return c.Ended() && c.Seq > seq })
	grown := len(c.Last().Text) > short
	if got := c.ReplayOf(c.Branch[3]); got.State != live.ReplayEqual || grown && got.Total <= 7 {
		t.Errorf("an answer that was continued, replayed: %+v", got)
	}

	// An answer that a person began is replayed with that beginning.
	c.Do("rewrite", map[string]any{"answer": c.Branch[3], "text": "Once upon a time there was"})
	c.Until("the words", func() bool { return c.Last().Text == "Once upon a time there was" })
	first, seq := c.Branch[3], c.Seq
	c.Do("continue", map[string]any{"answer": first, "settings": map[string]any{"max_tokens": 20, "seed": 7}})
	c.Until("the end", func() bool { return c.Ended() && c.Seq > seq })
	if got := c.ReplayOf(first); got.State != live.ReplayEqual || got.Total == 0 || len(got.Changes) != 0 {
		t.Errorf("an answer that a person began, replayed: %+v", got)
	}
	code := handlerstest.Call(t, server, http.MethodGet, fmt.Sprintf("/c/%s/code/%d?as=curl", c.Chat, first), "").Body
	if !strings.Contains(code, `"content": "Once upon a time there was"`) || !strings.Contains(code, `"continue_final_message": true`) {
		t.Errorf("the program for an answer that a person began:\n%s", code)
	}

	export := handlerstest.Call(t, server, http.MethodGet, "/c/"+c.Chat+"/export.json", "")
	var file page.ExportedChat
	if err := json.Unmarshal([]byte(export.Body), &file); err != nil {
		t.Fatal(err)
	}
	a := file.Messages[1].Answer
	at := len(a.Tokens) / 2
	a.Tokens[at]++
	a.Receipt.ModelHash = "an older file"
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	var imported struct{ Chat string }
	if err := json.Unmarshal([]byte(handlerstest.PostScripted(t, server, "/import", string(data)).Body), &imported); err != nil {
		t.Fatal(err)
	}
	tampered := handlerstest.DialSocket(t, server)
	tampered.Do("open", map[string]any{"chat": imported.Chat})
	tampered.Until("the chat", func() bool { return len(tampered.Branch) == 4 })
	got := tampered.ReplayOf(tampered.Branch[1])
	if got.State != live.ReplayDiffers || got.Equal != at || got.Is == got.Was || len(got.Changes) != 1 || got.Changes[0].What != "model file" {
		t.Errorf("with another token in the receipt: %+v", got)
	}

	for i := range file.Messages {
		if a := file.Messages[i].Answer; a != nil {
			a.Model = "gone"
		}
	}
	data, _ = json.Marshal(file)
	if err := json.Unmarshal([]byte(handlerstest.PostScripted(t, server, "/import", string(data)).Body), &imported); err != nil {
		t.Fatal(err)
	}
	orphan := handlerstest.DialSocket(t, server)
	orphan.Do("open", map[string]any{"chat": imported.Chat})
	orphan.Until("the chat", func() bool { return len(orphan.Branch) == 4 })
	if got := orphan.ReplayOf(0); got.State != live.ReplayFailed || got.Error.Code != fault.CodeNotFound || !strings.Contains(got.Error.Message, "gone") {
		t.Errorf("without the model: %+v, %+v", got, got.Error)
	}
}
