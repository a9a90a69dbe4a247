package handlers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"m40-llm/handlers/live"
	"m40-llm/handlers/page"
	"m40-llm/handlers/stream"
	"m40-llm/infer"
)

// replayOf lets an answer be written once more; 0: the last one.
func (c *socketClient) replayOf(answer int64) *stream.Replay {
	c.t.Helper()
	c.replay = nil
	c.do("replay", map[string]any{"answer": answer})
	c.until("the end of the replay", func() bool { return c.replay != nil && c.replay.State != live.ReplayRunning })
	return c.replay
}

// The real engine writes the same again, and a receipt that was tampered with is found.
func TestRealEngine_Replay(t *testing.T) {
	server, _ := serveStored(t, openGuide(t))
	c := dialSocket(t, server)
	turns := 0
	ask := func(text string, settings map[string]any) {
		c.do("send", map[string]any{"text": text, "system": "Be kind.", "settings": settings})
		turns += 2
		c.until("the end", func() bool { return len(c.branch) == turns && c.ended() })
	}
	hot := map[string]any{"temperature": 1.3, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1.2, "repeat_last_n": -1,
		"presence_penalty": 0.3, "frequency_penalty": -0.1, "typical_p": 0.9, "stop": []string{"zzz"}, "max_tokens": 24,
		"banned_strings": []string{"the", "a", " I"}, "xtc_probability": 0.3, "dry_multiplier": 0.8, "dynatemp_range": 0.4, "seed": 5, "samplers": []string{"dry", "top_p", "xtc", "temperature"}}
	ask("Tell me a story about a fox.", hot)
	ask("And then?", map[string]any{"max_tokens": 7, "seed": 6})
	for i, id := range []int64{c.branch[1], c.branch[3]} {
		got := c.replayOf(id)
		if got.State != live.ReplayEqual || got.Equal != got.Total || got.Total == 0 || len(got.Changes) != 0 {
			t.Errorf("answer %d, replayed: %+v", i+1, got)
		}
	}

	// One that a limit ended goes on as if it had not ended, and is replayed as one. It may
	// have nothing more to say.
	short, seq := len(c.last().text), c.seq
	c.do("continue", map[string]any{"answer": c.branch[3], "settings": map[string]any{"max_tokens": 30, "seed": -1}})
	c.until("the end", func() bool { return c.ended() && c.seq > seq })
	grown := len(c.last().text) > short
	if got := c.replayOf(c.branch[3]); got.State != live.ReplayEqual || grown && got.Total <= 7 {
		t.Errorf("an answer that was continued, replayed: %+v", got)
	}

	// An answer that a person began is replayed with that beginning.
	c.do("rewrite", map[string]any{"answer": c.branch[3], "text": "Once upon a time there was"})
	c.until("the words", func() bool { return c.last().text == "Once upon a time there was" })
	begun, seq := c.branch[3], c.seq
	c.do("continue", map[string]any{"answer": begun, "settings": map[string]any{"max_tokens": 20, "seed": 7}})
	c.until("the end", func() bool { return c.ended() && c.seq > seq })
	if got := c.replayOf(begun); got.State != live.ReplayEqual || got.Total == 0 || len(got.Changes) != 0 {
		t.Errorf("an answer that a person began, replayed: %+v", got)
	}
	code := call(t, server, http.MethodGet, fmt.Sprintf("/c/%s/code/%d?as=curl", c.chat, begun), "").body
	if !strings.Contains(code, `"content": "Once upon a time there was"`) || !strings.Contains(code, `"continue_final_message": true`) {
		t.Errorf("the program for an answer that a person began:\n%s", code)
	}

	export := call(t, server, http.MethodGet, "/c/"+c.chat+"/export.json", "")
	var file page.ExportedChat
	if err := json.Unmarshal([]byte(export.body), &file); err != nil {
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
	if err := json.Unmarshal([]byte(scripted(t, server, "/import", string(data)).body), &imported); err != nil {
		t.Fatal(err)
	}
	tampered := dialSocket(t, server)
	tampered.do("open", map[string]any{"chat": imported.Chat})
	tampered.until("the chat", func() bool { return len(tampered.branch) == 4 })
	got := tampered.replayOf(tampered.branch[1])
	if got.State != live.ReplayDiffers || got.Equal != at || got.Is == got.Was || len(got.Changes) != 1 || got.Changes[0].What != "model file" {
		t.Errorf("with another token in the receipt: %+v", got)
	}

	for i := range file.Messages {
		if a := file.Messages[i].Answer; a != nil {
			a.Model = "gone"
		}
	}
	data, _ = json.Marshal(file)
	if err := json.Unmarshal([]byte(scripted(t, server, "/import", string(data)).body), &imported); err != nil {
		t.Fatal(err)
	}
	orphan := dialSocket(t, server)
	orphan.do("open", map[string]any{"chat": imported.Chat})
	orphan.until("the chat", func() bool { return len(orphan.branch) == 4 })
	if got := orphan.replayOf(0); got.State != live.ReplayFailed || got.Error.Code != string(infer.CodeNotFound) || !strings.Contains(got.Error.Message, "gone") {
		t.Errorf("without the model: %+v, %+v", got, got.Error)
	}
}
