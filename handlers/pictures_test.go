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
