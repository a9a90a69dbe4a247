package handlers_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/chat"
)

// serveSeers starts a server whose models are seer, which reads pictures, and reader, which does not.
func serveSeers(t *testing.T) (*handlerstest.Script, func(path, body string) handlerstest.Response) {
	t.Helper()
	engine := handlerstest.NewScript()
	engine.List(infer.ModelInfo{Name: "reader"}, infer.ModelInfo{Name: "seer", Vision: true})
	server := handlerstest.Server(t, engine)
	return engine, func(path, body string) handlerstest.Response { return handlerstest.Post(t, server, path, body) }
}

// apiBodies are bodies that ask MODEL the same about one picture, PNG in base64, by path and form.
var apiBodies = []struct{ name, path, body string }{
	{"OpenAI's chat completions", "/v1/chat/completions", `{"model":"MODEL","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,PNG"}},{"type":"text","text":"What is this?"}]}]}`},
	{"OpenAI's responses", "/v1/responses", `{"model":"MODEL","input":[{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,PNG"},{"type":"input_text","text":"What is this?"}]}]}`},
	{"Anthropic's messages", "/v1/messages", `{"model":"MODEL","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PNG"}},{"type":"text","text":"What is this?"}]}]}`},
	{"Anthropic's messages with a data: URL", "/v1/messages", `{"model":"MODEL","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"data:image/png;base64,PNG"}},{"type":"text","text":"What is this?"}]}]}`},
	{"Ollama's chat", "/api/chat", `{"model":"MODEL","stream":false,"messages":[{"role":"user","content":"What is this?","images":["PNG"]}]}`},
	{"Ollama's completions", "/api/generate", `{"model":"MODEL","stream":false,"prompt":"What is this?","images":["PNG"]}`},
}

func TestAPI_APictureInEachFormReachesTheModel(t *testing.T) {
	engine, post := serveSeers(t)
	file := pngOf(t, 5, 3)
	for _, tc := range apiBodies {
		t.Run(tc.name, func(t *testing.T) {
			got := make(chan handlerstest.Response)
			go func() {
				got <- post(tc.path, strings.NewReplacer("MODEL", "seer", "PNG", base64.StdEncoding.EncodeToString([]byte(file))).Replace(tc.body))
			}()
			answer := engine.Next(t)
			if m := answer.Request.Messages; len(m) != 1 || m[0].Content != chat.PictureMark+"What is this?" || len(m[0].Pictures) != 1 || string(m[0].Pictures[0]) != file {
				t.Errorf("the engine got %+v", m)
			}
			answer.Write("A square.")
			answer.Finish()
			if r := <-got; r.Status != http.StatusOK {
				t.Errorf("got %d: %s", r.Status, r.Body)
			}
		})
	}
}

func TestAPI_AModelThatSeesNoPicturesNamesOneThatDoes(t *testing.T) {
	_, post := serveSeers(t)
	for _, tc := range apiBodies {
		t.Run(tc.name, func(t *testing.T) {
			got := post(tc.path, strings.NewReplacer("MODEL", "reader", "PNG", base64.StdEncoding.EncodeToString([]byte(pngOf(t, 5, 3)))).Replace(tc.body))
			if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `cannot see pictures`) || !strings.Contains(got.Body, `seer`) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
}

func TestAPI_PicturesInResultsOfToolsComeIntoTheNextMessage(t *testing.T) {
	file := pngOf(t, 5, 3)
	image := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"PNG"}}`
	for _, tc := range []struct{ name, path, body, next string }{
		{"Anthropic's messages, with a text behind the result", "/v1/messages", `{"model":"MODEL","max_tokens":9,"messages":[{"role":"user","content":"look"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"shot","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"Here:"},` + image + `]},{"type":"text","text":"And?"}]}]}`, "And?"},
		{"Anthropic's messages, with nothing behind it", "/v1/messages", `{"model":"MODEL","max_tokens":9,"messages":[{"role":"user","content":"look"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"shot","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"Here:"},` + image + `]}]}]}`, ""},
		{"OpenAI's responses", "/v1/responses", `{"model":"MODEL","input":[{"role":"user","content":"look"},{"type":"function_call","call_id":"a","name":"shot","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":[{"type":"input_text","text":"Here:"},{"type":"input_image","image_url":"data:image/png;base64,PNG"}]}]}`, ""},
	} {
		for _, model := range []string{"seer", "reader"} {
			t.Run(tc.name+", to "+model, func(t *testing.T) {
				engine, post := serveSeers(t)
				got := make(chan handlerstest.Response)
				go func() {
					got <- post(tc.path, strings.NewReplacer("MODEL", model, "PNG", base64.StdEncoding.EncodeToString([]byte(file))).Replace(tc.body))
				}()
				answer := engine.Next(t)
				m := answer.Request.Messages
				at := slices.IndexFunc(m, func(m chat.Message) bool { return m.Role == "tool" })
				if at < 0 || len(m[at].Pictures) != 0 || !strings.HasPrefix(m[at].Content, "Here:") || strings.Contains(m[at].Content, chat.PictureMark) {
					t.Fatalf("the engine got %+v", m)
				}
				last := m[len(m)-1]
				if model == "seer" && (last.Role != "user" || len(last.Pictures) != 1 || last.Content != chat.PictureMark+tc.next) {
					t.Errorf("the picture is not in the next message: %+v", last)
				}
				if model == "reader" && (len(last.Pictures) != 0 || !strings.Contains(m[at].Content, "cannot see images")) {
					t.Errorf("the result says nothing of the picture: %+v", m)
				}
				answer.Finish()
				<-got
			})
		}
	}
}

func TestAPI_WhatIsNoPictureIsRefused(t *testing.T) {
	_, post := serveSeers(t)
	for _, tc := range []struct{ name, path, body, says string }{
		{"an address", "/v1/messages", `{"model":"seer","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]}`, "data: URL"},
		{"a file that was stored", "/v1/responses", `{"model":"seer","input":[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]}`, "file_id"},
		{"another source", "/v1/messages", `{"model":"seer","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"file"}}]}]}`, "source.type"},
		{"no base64", "/api/chat", `{"model":"seer","messages":[{"role":"user","content":"x","images":["?"]}]}`, "base64"},
		{"a number", "/api/chat", `{"model":"seer","messages":[{"role":"user","content":"x","images":[5]}]}`, "images"},
		{"a picture of the assistant", "/api/chat", `{"model":"seer","messages":[{"role":"assistant","content":"x","images":["aGk="]}]}`, "role user"},
		{"pictures in a raw prompt", "/api/generate", `{"model":"seer","raw":true,"prompt":"x","images":["aGk="]}`, "raw"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := post(tc.path, tc.body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, tc.says) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: strings.Repeat(chat.PictureMark, 1000), Pictures: make([][]byte, 1000)}}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "256 pictures") {
		t.Errorf("1000 pictures: got %v", err)
	}
}

func TestAPI_ListsSayWhichModelsSee(t *testing.T) {
	engine := handlerstest.NewScript()
	engine.List(infer.ModelInfo{Name: "reader"}, infer.ModelInfo{Name: "seer", Vision: true})
	server := handlerstest.Server(t, engine)
	var models struct {
		Data []struct {
			ID   string
			Meta struct{ Vision bool }
		}
	}
	if err := json.Unmarshal([]byte(handlerstest.Call(t, server, http.MethodGet, "/v1/models", "").Body), &models); err != nil {
		t.Fatal(err)
	}
	for _, m := range models.Data {
		if m.Meta.Vision != (m.ID == "seer") {
			t.Errorf("/v1/models says %+v", m)
		}
		var shown struct{ Capabilities []string }
		if err := json.Unmarshal([]byte(handlerstest.Post(t, server, "/api/show", `{"model":"`+m.ID+`"}`).Body), &shown); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(shown.Capabilities, "vision") != (m.ID == "seer") {
			t.Errorf("/api/show says of %s: %v", m.ID, shown.Capabilities)
		}
	}
	if tags := handlerstest.Call(t, server, http.MethodGet, "/api/tags", "").Body; strings.Count(tags, `"vision"`) != 1 {
		t.Errorf("/api/tags says %s", tags)
	}
}
