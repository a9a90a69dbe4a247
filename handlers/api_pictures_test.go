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

func TestAPI_PicturesOfAPromptReachTheModel(t *testing.T) {
	first, second := pngOf(t, 5, 3), pngOf(t, 2, 2)
	files := strings.NewReplacer("PNG1", base64.StdEncoding.EncodeToString([]byte(first)), "PNG2", base64.StdEncoding.EncodeToString([]byte(second)))
	for _, tc := range []struct {
		name, path, body, prompt string
		pictures                 []string
	}{
		{"an object", "/completion", `{"model":"seer","prompt":{"prompt_string":"a <__media__> b\uFFFC<__media__>","multimodal_data":["PNG1","data:image/png;base64,PNG2"]}}`, "a " + chat.PictureMark + " b\uFFFD" + chat.PictureMark, []string{first, second}},
		{"an array of one object", "/completion", `{"model":"seer","prompt":[{"prompt_string":"<__media__>","multimodal_data":["PNG1"]}]}`, chat.PictureMark, []string{first}},
		{"an object without files, whose marks are text", "/completion", `{"model":"seer","prompt":{"prompt_string":"a <__media__>"}}`, "a <__media__>", nil},
		{"numbered pictures, one of them twice", "/completion", `{"model":"seer","prompt":"[img-7] and [img-12], [img-7]","image_data":[{"data":"PNG1","id":12},{"data":"PNG2","id":7}]}`, chat.PictureMark + " and " + chat.PictureMark + ", " + chat.PictureMark, []string{second, first, second}},
		{"no numbered pictures, so that marks are text", "/completion", `{"model":"seer","prompt":"[img-7]","image_data":[]}`, "[img-7]", nil},
		{"OpenAI's text completions", "/v1/completions", `{"model":"seer","prompt":{"prompt_string":"<__media__>?","multimodal_data":["PNG1"]}}`, chat.PictureMark + "?", []string{first}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			engine, post := serveSeers(t)
			got := make(chan handlerstest.Response)
			go func() { got <- post(tc.path, files.Replace(tc.body)) }()
			answer := engine.Next(t)
			r := answer.Request
			var pictures []string
			for _, p := range r.Pictures {
				pictures = append(pictures, string(p))
			}
			if r.Prompt != tc.prompt || !slices.Equal(pictures, tc.pictures) || r.Validate() != nil {
				t.Errorf("the engine got %q with %d pictures, want %q with %d", r.Prompt, len(pictures), tc.prompt, len(tc.pictures))
			}
			answer.Finish()
			if r := <-got; r.Status != http.StatusOK {
				t.Errorf("got %d: %s", r.Status, r.Body)
			}
		})
	}
}

func TestAPI_APromptWhosePicturesHaveNoPlaceIsRefused(t *testing.T) {
	_, post := serveSeers(t)
	for _, tc := range []struct{ name, path, body, says string }{
		{"more files than marks", "/completion", `{"prompt":{"prompt_string":"<__media__>","multimodal_data":["aGk=","aGk="]}}`, "has 2 files, and prompt.prompt_string has 1 marks"},
		{"more marks than files", "/completion", `{"prompt":{"prompt_string":"<__media__><__media__>","multimodal_data":["aGk="]}}`, "has 1 files"},
		{"no base64", "/completion", `{"prompt":{"prompt_string":"<__media__>","multimodal_data":["?"]}}`, "prompt.multimodal_data[0] is not valid base64"},
		{"a file that is a number", "/completion", `{"prompt":{"prompt_string":"<__media__>","multimodal_data":[5]}}`, "prompt.multimodal_data[0]"},
		{"data that is no array", "/completion", `{"prompt":{"prompt_string":"<__media__>","multimodal_data":"aGk="}}`, "prompt.multimodal_data"},
		{"an address", "/completion", `{"prompt":{"prompt_string":"<__media__>","multimodal_data":["https://example.com/a.png"]}}`, "not valid base64"},
		{"a text that is a number", "/completion", `{"prompt":{"prompt_string":5}}`, "prompt.prompt_string"},
		{"an object without a text", "/completion", `{"prompt":{}}`, "prompt.prompt_string is missing"},
		{"both forms", "/completion", `{"prompt":{"prompt_string":"[img-1]<__media__>","multimodal_data":["aGk="]},"image_data":[{"id":1,"data":"aGk="}]}`, "exclude each other"},
		{"a numbered picture beside tokens", "/completion", `{"prompt":[1,2],"image_data":[{"id":1,"data":"aGk="}]}`, "not tokens"},
		{"a numbered picture without a place", "/completion", `{"prompt":"a","image_data":[{"id":1,"data":"aGk="}]}`, "write [img-1] where it stands"},
		{"a place without a numbered picture", "/completion", `{"prompt":"[img-1][img-2]","image_data":[{"id":1,"data":"aGk="}]}`, "prompt shows [img-2]"},
		{"a number that two pictures have", "/completion", `{"prompt":"[img-1]","image_data":[{"id":1,"data":"aGk="},{"id":1,"data":"aGk="}]}`, "image_data[1].id is 1"},
		{"a picture without a number", "/completion", `{"prompt":"[img-1]","image_data":[{"data":"aGk="}]}`, "image_data[0].id"},
		{"a numbered picture that is no base64", "/completion", `{"prompt":"[img-1]","image_data":[{"id":1,"data":"?"}]}`, "image_data[0].data is not valid base64"},
		{"a model that sees nothing", "/completion", `{"model":"reader","prompt":{"prompt_string":"<__media__>","multimodal_data":["aGk="]}}`, `seer`},
		{"a gap", "/v1/completions", `{"suffix":"b","prompt":{"prompt_string":"<__media__>","multimodal_data":["aGk="]}}`, "without tokens and pictures"},
		{"texts to embed", "/v1/embeddings", `{"input":{"prompt_string":"<__media__>","multimodal_data":["aGk="]}}`, "input must be a string"},
		{"a text behind an object", "/v1/completions", `{"prompt":[{"prompt_string":"a"},"b"]}`, "prompt[1] must be an object"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := post(tc.path, tc.body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, tc.says) {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
	if got := handlerstest.Call(t, handlerstest.Server(t, handlerstest.OpenGuide(t)), http.MethodGet, "/props", "").Body; !strings.Contains(got, `"media_marker":"\u003c__media__\u003e"`) && !strings.Contains(got, `"media_marker":"<__media__>"`) {
		t.Errorf("the marker is not in %s", got)
	}
}

func TestAPI_TheDetailOfAPictureReachesTheModel(t *testing.T) {
	file := base64.StdEncoding.EncodeToString([]byte(pngOf(t, 5, 3)))
	chats := func(detail string) string {
		return `{"model":"seer","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + file + `"}},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + file + `","detail":"` + detail + `"}}]}]}`
	}
	shown := func(detail string) string {
		return `{"type":"input_image","image_url":"data:image/png;base64,` + file + `","detail":"` + detail + `"}`
	}
	for _, tc := range []struct {
		name, path, body string
		want             []chat.Detail
	}{
		{"low in chat completions", "/v1/chat/completions", chats("low"), []chat.Detail{chat.Full, chat.Low}},
		{"medium in chat completions", "/v1/chat/completions", chats("medium"), []chat.Detail{chat.Full, chat.Medium}},
		{"high in chat completions", "/v1/chat/completions", chats("high"), nil},
		{"auto in chat completions", "/v1/chat/completions", chats("auto"), nil},
		{"low in responses", "/v1/responses", `{"model":"seer","input":[{"role":"user","content":[` + shown("low") + `,{"type":"input_text","text":"What?"}]}]}`, []chat.Detail{chat.Low}},
		{"low in the result of a tool, before a picture of the user", "/v1/responses", `{"model":"seer","input":[{"role":"user","content":"look"},{"type":"function_call","call_id":"a","name":"shot","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":[` + shown("low") + `]},{"role":"user","content":[` + shown("auto") + `]}]}`, []chat.Detail{chat.Low, chat.Full}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			engine, post := serveSeers(t)
			got := make(chan handlerstest.Response)
			go func() { got <- post(tc.path, tc.body) }()
			answer := engine.Next(t)
			m := answer.Request.Messages
			if last := m[len(m)-1]; !slices.Equal(last.Details, tc.want) || answer.Request.Validate() != nil {
				t.Errorf("the engine got %q of %d pictures, %v, want %q", last.Details, len(last.Pictures), answer.Request.Validate(), tc.want)
			}
			answer.Finish()
			if r := <-got; r.Status != http.StatusOK {
				t.Errorf("got %d: %s", r.Status, r.Body)
			}
		})
	}
	_, post := serveSeers(t)
	for path, body := range map[string]string{"/v1/chat/completions": chats("huge"), "/v1/responses": `{"model":"seer","input":[{"role":"user","content":[` + shown("huge") + `]}]}`} {
		if got := post(path, body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "detail must be low, medium, high or auto, not") {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
	}
}
