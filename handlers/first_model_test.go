package handlers_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/infer"
)

func TestPagesOfferAModelForEmbeddingsNeitherAsBrokenNorForChats(t *testing.T) {
	engine := handlerstest.NewScript()
	embeds := infer.ModelInfo{Name: "minilm-f32", Embedding: 384}
	engine.List(embeds, infer.ModelInfo{Name: "small"})
	engine.Set(func(s *infer.Status) { s.Model = embeds }) // a program asked for embeddings
	chats := live.New(engine, live.Options{Log: slog.New(slog.DiscardHandler), FirstModel: func(context.Context, string) string { return "small" }})
	t.Cleanup(chats.Close)
	server := handlerstest.ServeChats(t, engine, chats)
	page := func(path string) string {
		return handlerstest.Call(t, server, "GET", path, "", "Accept", handlerstest.BrowserAccept).Body
	}

	for path, c := range map[string]struct{ want, unwanted []string }{
		"/":       {[]string{`placeholder="Ask small something"`, `name="model" value="small"`}, []string{`value="minilm-f32"`}},
		"/models": {[]string{"computes embeddings for programs", "minilm-f32"}, []string{`class="sub err"`, "cannot chat"}},
		"/blind":  {[]string{"small"}, []string{"minilm-f32"}},
	} {
		got := page(path)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
		for _, unwanted := range c.unwanted {
			if strings.Contains(got, unwanted) {
				t.Errorf("%s has %q", path, unwanted)
			}
		}
	}
}
