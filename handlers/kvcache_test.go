package handlers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/live"
	"m40-llm/infer/engine"
	"m40-llm/infer/kvfile"
	"m40-llm/store"
)

// home is a data folder with a server on the Guide, which can be started again.
type home struct {
	t      *testing.T
	path   string
	caches *kvfile.Dir
	db     *store.Store
	engine *engine.Engine
	chats  *live.Service
}

func newHome(t *testing.T) *home {
	h := &home{t: t, path: t.TempDir()}
	h.start()
	return h
}

func (h *home) start() {
	h.t.Helper()
	var err error
	if h.caches, err = kvfile.OpenDir(filepath.Join(h.path, "kv")); err != nil {
		h.t.Fatal(err)
	}
	h.db = openStoreAt(h.t, filepath.Join(h.path, "chats.db"))
	h.engine = openGuide(h.t, func(o *engine.Options) { o.KVDir = filepath.Join(h.path, "kv") })
	h.chats = live.New(h.engine, live.Options{Store: h.db, KVFiles: h.caches})
	h.t.Cleanup(h.chats.Close)
}

func (h *home) restart() {
	h.t.Helper()
	h.chats.Close()
	h.engine.Close()
	if err := h.db.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.start()
}

// ask asks in a chat, which is new if id is empty, and returns the chat and the answer.
func (h *home) ask(id, question string) (*live.Chat, live.Answer, string) {
	h.t.Helper()
	settings := live.DefaultSettings()
	settings.Seed, settings.MaxTokens = 5, 60
	q := live.Question{Text: question, Settings: settings}
	c, err := h.chats.Chat(h.t.Context(), access.Local, id)
	if id == "" {
		c, err = h.chats.Start(h.t.Context(), access.Local, q, false)
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

func (h *home) cache(c *live.Chat) live.KVCache {
	h.t.Helper()
	k, err := c.KVCache(access.Local)
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

const longQuestion = "Tell me about tokens, sampling, temperature, top-k, top-p, min-p, seeds, presets, the context and the cache, one after the other please."

func TestAChatIsWarmAfterARestart(t *testing.T) {
	h := newHome(t)
	c, first, _ := h.ask("", longQuestion)
	if first.Usage.CachedTokens != 0 {
		t.Fatalf("the first prompt has %d cached tokens", first.Usage.CachedTokens)
	}
	if first.Reads.Bytes == 0 || first.Reads.Micros == 0 {
		t.Errorf("decode read %+v", first.Reads)
	}
	id := c.ID()
	h.restart()
	c, err := h.chats.Chat(t.Context(), access.Local, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.engine.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := h.cache(c)
	if whole := (first.Usage.PromptTokens + first.Usage.CompletionTokens - 1) / 32 * 32; k.Tokens != whole || k.Tokens < 64 || k.Bytes == 0 || k.Total != k.Bytes {
		t.Fatalf("%+v is stored, want %d tokens", k, whole)
	}
	_, warm, said := h.ask(id, "And now once more.")
	if warm.Usage.CachedTokens != k.Tokens {
		t.Errorf("%d tokens were cached, want %d", warm.Usage.CachedTokens, k.Tokens)
	}

	// The same chat without a stored cache says the same.
	other := newHome(t)
	c, _, _ = other.ask("", longQuestion)
	id = c.ID()
	other.restart()
	if err := other.caches.Remove(id); err != nil {
		t.Fatal(err)
	}
	_, cold, again := other.ask(id, "And now once more.")
	if cold.Usage.CachedTokens != 0 || again != said || cold.LogProb != warm.LogProb || again == "" {
		t.Errorf("with %d cached tokens %q, %v; with %d %q, %v", warm.Usage.CachedTokens, said, warm.LogProb, cold.Usage.CachedTokens, again, cold.LogProb)
	}
}

func TestAStoredCacheIsDeletedWithItsChat(t *testing.T) {
	caches, err := kvfile.OpenDir(filepath.Join(t.TempDir(), "kv"))
	if err != nil {
		t.Fatal(err)
	}
	db := openStore(t)
	open := func() *live.Service {
		s := live.New(&fakeEngine{}, live.Options{Store: db, KVFiles: caches})
		t.Cleanup(s.Close)
		return s
	}
	chats := open()
	anna, err := db.AddPerson(t.Context(), "Anna")
	if err != nil {
		t.Fatal(err)
	}
	start := func(who access.Principal, temporary bool) string {
		c, err := chats.Start(t.Context(), who, live.Question{Text: "hi", Settings: live.DefaultSettings()}, temporary)
		if err != nil {
			t.Fatal(err)
		}
		return c.ID()
	}
	has := func(id string) bool {
		s, err := caches.Stored(id)
		if err != nil {
			t.Fatal(err)
		}
		return s.Name != ""
	}
	kept, deleted, temporary, ofAnna := start(access.Local, false), start(access.Local, false), start(access.Local, true), start(access.Of(anna), false)
	pruned := start(access.Local, false)
	if !has(kept) || !has(deleted) || !has(ofAnna) || has(temporary) {
		t.Fatal("stored chats have a file, temporary ones have none")
	}
	if err := chats.Delete(t.Context(), access.Local, deleted); err != nil || has(deleted) {
		t.Errorf("the file of a deleted chat: %v, %v", has(deleted), err)
	}
	chat, err := chats.Chat(t.Context(), access.Local, pruned)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := db.Branch(t.Context(), access.Local.Owner, pruned)
	if err != nil {
		t.Fatal(err)
	}
	if err := chat.Prune(t.Context(), access.Local, answers[len(answers)-1].ID); err != nil || has(pruned) {
		t.Errorf("the file of a chat of which a branch was deleted: %v, %v", has(pruned), err)
	}
	if err := db.ErasePerson(t.Context(), anna.ID); err != nil {
		t.Fatal(err)
	}
	if chats.Forget(anna.ID); has(ofAnna) || !has(kept) {
		t.Error("the file of a person who was removed is still there, or that of another is not")
	}
	if err := caches.Allow("leftover"); err != nil {
		t.Fatal(err)
	}
	chats.Close()
	if open(); has("leftover") || !has(kept) {
		t.Error("a start does not delete the files of chats that are not there")
	}
	chats = open()
	if err := chats.SetKVLimit(t.Context(), 0); err != nil || has(kept) {
		t.Errorf("with a limit of 0 an empty file is still there, %v", err)
	}
}

func TestOnlyTheServerSaysWhereACacheIsStored(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv")
	caches, err := kvfile.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := caches.Allow("victim"); err != nil {
		t.Fatal(err)
	}
	e := openGuide(t, func(o *engine.Options) { o.KVDir = path })
	got := post(t, server(t, e), "/v1/generate", `{"prompt":"`+longQuestion+`","max_tokens":20,"kv_file":{"name":"victim","limit":1000000000}}`)
	e.Close()
	if s, err := caches.Stored("victim"); err != nil || s.Bytes != 0 || !strings.Contains(got.body, `"done"`) {
		t.Errorf("a client of the API has written %d bytes, %v; it got %d", s.Bytes, err, got.status)
	}
}

// The page says whether the chat is warm, what that means and how much it takes, and deletes it.
func TestPage_WarmAndColdChats(t *testing.T) {
	source := axe(t)
	h := newHome(t)
	server := serveChats(t, h.engine, h.chats)
	b := openBrowser(t, server)
	run := steps(t, b)
	b.open("/")
	if b.value("String(document.querySelector('#kvcache').hidden)") != "true" {
		t.Error("an empty page has a cache")
	}
	b.set("max_tokens", "60")
	b.say(longQuestion)

	run("a chat is warm after its answer", func(t *testing.T) {
		b.until("document.querySelector('[data-warm]').innerText === 'warm'")
		b.click("#kvcache summary")
		b.until("/The next answer need not read the first \\d+ tokens of this chat again/.test(document.querySelector('#kvcache [data-about]').innerText)")
		if got := b.text("#kvcache [data-size]"); !strings.HasSuffix(got, "MB") && !strings.HasSuffix(got, "kB") {
			t.Errorf("its size is %q", got)
		}
		b.look(source, "a warm chat", "heading-order", "region", "landmark-unique")
	})
	run("its cache can be deleted", func(t *testing.T) {
		b.click("#kvcache [data-remove]")
		b.until("document.querySelector('[data-warm]').innerText === 'cold' && document.querySelector('#kvcache [data-about]').innerText.startsWith('The next answer reads the whole chat again')")
		b.look(source, "a cold chat", "heading-order", "region", "landmark-unique")
	})
	run("the owner sets the limit of all", func(t *testing.T) {
		b.script("const f = document.querySelector('#kvcache form'); f.megabytes.value = 0; f.requestSubmit()")
		b.until("document.querySelector('#kvcache [data-about]').innerText.endsWith('this server does not store keys and values.')")
	})
	if files, err := os.ReadDir(filepath.Join(h.path, "kv")); err != nil || len(files) != 0 {
		t.Errorf("there are %v, %v", files, err)
	}
	for _, body := range []string{`{}`, `{"megabytes":-1}`, `{"megabytes":1048577}`} {
		if got := post(t, server, "/caches", body, "Origin", server.URL); got.status != 400 || !strings.Contains(got.body, "megabytes") {
			t.Errorf("%s: %s", body, fmt.Sprint(got.status, got.body))
		}
	}
}
