package handlers_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"m40-llm/handlers/api"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/engine"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/hub"
)

// pictureBody is a chat about a picture of the fixtures.
func pictureBody(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "images", "pictures", file))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"max_tokens":4,"temperature":0,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}},{"type":"text","text":"Describe the picture."}]}]}`,
		base64.StdEncoding.EncodeToString(data))
}

func TestChat_APictureIsReadAndCounted(t *testing.T) {
	dir := fixtures.Path(t, "images", "gemma3")
	seeing := handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model = hub.New(hub.Options{Dir: dir}), "text"
		o.OpenTower = func(*gguf.File) (device.Device, error) { return cpu.Open(1) }
	})
	server := handlerstest.Server(t, seeing)
	ask := func(file string) (answer api.ChatResponse) {
		got := handlerstest.Post(t, server, "/v1/chat/completions", pictureBody(t, file))
		if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || got.Status != http.StatusOK {
			t.Fatalf("got %d: %s", got.Status, got.Body)
		}
		return answer
	}
	first, again, other := ask("wide.png"), ask("wide.png"), ask("square.png")
	if first.Usage.PromptTokens != 39 {
		t.Errorf("the prompt counts %d tokens, want 39, of which 16 are the picture", first.Usage.PromptTokens)
	}
	if *first.Choices[0].Message.Content != *again.Choices[0].Message.Content {
		t.Errorf("got %q, then %q", *first.Choices[0].Message.Content, *again.Choices[0].Message.Content)
	}
	if *first.Choices[0].Message.Content == *other.Choices[0].Message.Content {
		t.Errorf("two pictures have the same answer %q", *other.Choices[0].Message.Content)
	}
}

// Every API counts the same prompt: 39 tokens, of which 16 are the picture.
func TestAPI_APictureIsCountedInEachForm(t *testing.T) {
	seeing := handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model = hub.New(hub.Options{Dir: fixtures.Path(t, "images", "gemma3")}), "text"
		o.OpenTower = func(*gguf.File) (device.Device, error) { return cpu.Open(1) }
	})
	server := handlerstest.Server(t, seeing)
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "wide.png"))
	if err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("MODEL", "text", "PNG", base64.StdEncoding.EncodeToString(file), "What is this?", "Describe the picture.")
	for _, tc := range apiBodies {
		t.Run(tc.name, func(t *testing.T) {
			got := handlerstest.Post(t, server, tc.path, strings.Replace(fill.Replace(tc.body), "{", `{"temperature":0,`, 1))
			var answer struct {
				Usage struct {
					Prompt int `json:"prompt_tokens"`
					Input  int `json:"input_tokens"` // without the cached ones
					Cached int `json:"cache_read_input_tokens"`
				}
				Count int `json:"prompt_eval_count"`
			}
			if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || got.Status != http.StatusOK {
				t.Fatalf("got %d: %s", got.Status, got.Body)
			}
			if n := answer.Usage.Prompt + answer.Usage.Input + answer.Usage.Cached + answer.Count; n != 39 {
				t.Errorf("the prompt counts %d tokens, want 39: %s", n, got.Body)
			}
		})
	}
	body := strings.Replace(fill.Replace(apiBodies[2].body), `"max_tokens":9,`, "", 1)
	if got := handlerstest.Post(t, server, "/v1/messages/count_tokens", body); !strings.Contains(got.Body, `"input_tokens":39`) {
		t.Errorf("before it is sent: %s", got.Body)
	}
}

// The tokens of a prompt do not say what its pictures show: to compute them alone would show other probabilities.
func TestScore_APromptWithPicturesIsNotScored(t *testing.T) {
	seeing := handlerstest.OpenGuide(t, func(o *engine.Options) {
		o.Catalog, o.Model = hub.New(hub.Options{Dir: fixtures.Path(t, "images", "gemma3")}), "text"
		o.OpenTower = func(*gguf.File) (device.Device, error) { return cpu.Open(1) }
	})
	server, _ := handlerstest.ServeStored(t, seeing)
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "wide.png"))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		pictures []string
		status   int
	}{"a text": {nil, http.StatusOK}, "a picture": {[]string{upload(t, server, string(file)).Hash}, http.StatusBadRequest}} {
		t.Run(name, func(t *testing.T) {
			c := handlerstest.DialSocket(t, server)
			c.Do("send", map[string]any{"text": "What is this?", "pictures": tc.pictures, "settings": map[string]any{"max_tokens": 4, "temperature": 0}})
			c.Until("the answer ends", c.Ended)
			got := handlerstest.PostScripted(t, server, "/c/"+c.Chat+"/score/"+lastAnswer(c), "{}")
			if got.Status != tc.status || (tc.status != http.StatusOK) != strings.Contains(got.Body, "pictures cannot be scored") {
				t.Errorf("got %d: %.300s", got.Status, got.Body)
			}
		})
	}
}

func TestChat_AModelThatCannotSeeRefusesPictures(t *testing.T) {
	got := handlerstest.Post(t, handlerstest.Server(t, handlerstest.OpenGuide(t)), "/v1/chat/completions", pictureBody(t, "wide.png"))
	e := parseError(t, got)
	if got.Status != http.StatusBadRequest || e.Param == nil || *e.Param != "messages" || !strings.Contains(e.Message, "cannot see pictures") {
		t.Errorf("got %d: %s", got.Status, got.Body)
	}
}

func TestStatus_DoesNotTellWhereTheCompanionFileOfTheModelLies(t *testing.T) {
	engine := handlerstest.NewScript()
	engine.Set(func(s *infer.Status) { s.Model.Companion = "/home/anna/models/mmproj.gguf" })
	engine.List(infer.ModelInfo{Name: "guide", Companion: "/home/anna/models/mmproj.gguf"})
	server := handlerstest.Server(t, engine)
	for _, path := range []string{"/v1/status", "/v1/models", "/api/ps", "/api/tags", "/props"} {
		if got := handlerstest.Call(t, server, http.MethodGet, path, ""); got.Status != http.StatusOK || strings.Contains(got.Body, "mmproj") {
			t.Errorf("%s: got %d: %s", path, got.Status, got.Body)
		}
	}
}
