package handlers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/infer"
	"m40-llm/infer/fixtures"
)

// addressBodies name a picture by its address in the form of each API.
var addressBodies = map[string]struct{ path, body string }{
	"chat completions": {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"ADDRESS"}},{"type":"text","text":"What?"}]}]}`},
	"responses":        {"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image","image_url":"ADDRESS"},{"type":"input_text","text":"What?"}]}]}`},
	"messages":         {"/v1/messages", `{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"ADDRESS"}},{"type":"text","text":"What?"}]}]}`},
}

func TestAPI_PicturesAtAddressesAreFetchedOnlyIfTheOwnerAllowsIt(t *testing.T) {
	file, err := os.ReadFile(fixtures.Path(t, "images", "pictures", "wide.png"))
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	fetch := func(_ context.Context, address string, most int64) ([]byte, error) {
		if asked = append(asked, address); strings.Contains(address, "gone") {
			return nil, errors.New("example.com returned status 404")
		}
		if most < 1 {
			return nil, fmt.Errorf("at most %d bytes are taken", most)
		}
		return file, nil
	}
	for name, tc := range addressBodies {
		t.Run(name, func(t *testing.T) {
			engine := handlerstest.NewScript()
			engine.Set(func(s *infer.Status) { s.Model.Vision = true })
			engine.List(infer.ModelInfo{Name: "guide", Vision: true})
			closed := handlerstest.Server(t, engine)
			open := handlerstest.Server(t, engine, func(c *handlers.Config) { c.FetchPicture = fetch })
			body := func(address string) string { return strings.Replace(tc.body, "ADDRESS", address, 1) }

			asked = nil
			got := handlerstest.Post(t, closed, tc.path, body("https://example.com/a.png"))
			if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "--image-urls") || len(asked) != 0 {
				t.Errorf("without the flag: %d %s, asked for %v", got.Status, got.Body, asked)
			}
			got = handlerstest.Post(t, open, tc.path, body("https://example.com/gone.png"))
			if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "https://example.com/gone.png cannot be fetched: example.com returned status 404") {
				t.Errorf("a picture that is not there: %d %s", got.Status, got.Body)
			}
			ended := make(chan handlerstest.Response)
			go func() { ended <- handlerstest.Post(t, open, tc.path, body("HTTPS://example.com/a.png")) }()
			a := engine.Next(t)
			if m := a.Request.Messages[0]; len(m.Pictures) != 1 || string(m.Pictures[0]) != string(file) {
				t.Errorf("the engine got %d pictures", len(m.Pictures))
			}
			a.Write("A fox.")
			a.Finish()
			if got := <-ended; got.Status != http.StatusOK {
				t.Errorf("got %d: %s", got.Status, got.Body)
			}
		})
	}
	t.Run("too many", func(t *testing.T) {
		engine := handlerstest.NewScript()
		engine.Set(func(s *infer.Status) { s.Model.Vision = true })
		engine.List(infer.ModelInfo{Name: "guide", Vision: true})
		server := handlerstest.Server(t, engine, func(c *handlers.Config) { c.FetchPicture = fetch })
		part := `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},`
		body := strings.Replace(addressBodies["chat completions"].body, `{"type":"image_url","image_url":{"url":"ADDRESS"}},`, strings.Repeat(part, 17), 1)
		if got := handlerstest.Post(t, server, "/v1/chat/completions", body); got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "more than 16") {
			t.Errorf("got %d: %s", got.Status, got.Body)
		}
	})
}
