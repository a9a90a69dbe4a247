package handlerstest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/disk"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/engine"
	"m40-llm/infer/kvfile"
	"m40-llm/store"
)

// Asked stores a chat of a person with one question that has no answer, and returns both.
func Asked(t *testing.T, chats *live.Service, who access.Principal, text string) (*live.Chat, int64) {
	t.Helper()
	settings := setting.Default()
	settings.TopK, settings.TopP, settings.MinP = 0, 1, 0 // nothing is removed: at high temperatures an answer hardly ever ends by itself
	c, err := chats.Start(t.Context(), who, live.Question{Text: text, Settings: settings, Unanswered: true}, false)
	if err != nil {
		t.Fatal(err)
	}
	q, _, _, err := c.Question(who, 0)
	if err != nil || q.Text != text || q.Answer != nil {
		t.Fatalf("the question is %+v, %v", q, err)
	}
	return c, q.ID
}

// FirstNumbers returns the numbers from 1 to n.
func FirstNumbers(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(i + 1)
	}
	return strings.Join(list, " ")
}

// Home is a data folder with a server on the Guide, which can be started again.
type Home struct {
	t      *testing.T
	Path   string
	Caches *kvfile.Dir
	db     *store.Store
	Engine *engine.Engine
	Chats  *live.Service
}

// NewHome starts a server in a new data folder.
func NewHome(t *testing.T) *Home {
	h := &Home{t: t, Path: t.TempDir()}
	h.start()
	return h
}

// start opens the store and the engine in the folder.
func (h *Home) start() {
	h.t.Helper()
	var err error
	if h.Caches, err = kvfile.OpenDir(filepath.Join(h.Path, "kv")); err != nil {
		h.t.Fatal(err)
	}
	h.db = OpenStoreAt(h.t, filepath.Join(h.Path, "chats.db"))
	h.Engine = OpenGuide(h.t, func(o *engine.Options) { o.KVDir = filepath.Join(h.Path, "kv") })
	h.Chats = live.New(h.Engine, live.Options{Store: h.db, KVFiles: h.Caches})
	h.t.Cleanup(h.Chats.Close)
}

// Restart stops the server and starts another one in the same folder.
func (h *Home) Restart() {
	h.t.Helper()
	h.Chats.Close()
	h.Engine.Close()
	if err := h.db.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.start()
}

// Ask asks in a chat, which is new if id is empty, and returns the chat and the answer.
func (h *Home) Ask(id, question string) (*live.Chat, live.Answer, string) {
	h.t.Helper()
	settings := setting.Default()
	settings.Seed, settings.MaxTokens = 5, 60
	q := live.Question{Text: question, Settings: settings}
	c, err := h.Chats.Chat(h.t.Context(), access.Local, id)
	if id == "" {
		c, err = h.Chats.Start(h.t.Context(), access.Local, q, false)
	} else if err == nil {
		err = c.Send(h.t.Context(), access.Local, q)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	sub, snapshot, err := c.Subscribe(h.t.Context(), access.Local, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	defer sub.Close()
	last := snapshot.Messages[len(snapshot.Messages)-1]
	for last.Answer.State.Running() {
		<-sub.Ready()
		events, err := sub.Take()
		if err != nil {
			h.t.Fatal(err)
		}
		for _, e := range events {
			if e.Type == live.EventEnd {
				last = *e.Message
			}
		}
	}
	return c, *last.Answer, last.Text
}

// Cache returns what is known of the file with the KV cache of a chat.
func (h *Home) Cache(c *live.Chat) disk.KVCache {
	h.t.Helper()
	k, err := c.KVCache(access.Local)
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

// LongQuestion has more tokens than a block of the KV cache.
const LongQuestion = "Tell me about tokens, sampling, temperature, top-k, top-p, min-p, seeds, presets, the context and the cache, one after the other please."
