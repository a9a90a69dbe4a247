package handlers_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/handlers/setting"
	"m40-llm/infer/engine"
	"m40-llm/infer/kvfile"
)

func TestAChatIsWarmAfterARestart(t *testing.T) {
	h := handlerstest.NewHome(t)
	c, first, _ := h.Ask("", handlerstest.LongQuestion)
	if first.Usage.CachedTokens != 0 {
		t.Fatalf("the first prompt has %d cached tokens", first.Usage.CachedTokens)
	}
	if first.Reads.Bytes == 0 || first.Reads.Micros == 0 {
		t.Errorf("decode read %+v", first.Reads)
	}
	id := c.ID()
	h.Restart()
	c, err := h.Chats.Chat(t.Context(), access.Local, id)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Engine.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := h.Cache(c)
	if whole := (first.Usage.PromptTokens + first.Usage.CompletionTokens - 1) / 32 * 32; k.Tokens != whole || k.Tokens < 64 || k.Bytes == 0 || k.Total != k.Bytes {
		t.Fatalf("%+v is stored, want %d tokens", k, whole)
	}
	_, warm, said := h.Ask(id, "And now once more.")
	if warm.Usage.CachedTokens != k.Tokens {
		t.Errorf("%d tokens were cached, want %d", warm.Usage.CachedTokens, k.Tokens)
	}

	// The same chat without a stored cache says the same.
	other := handlerstest.NewHome(t)
	c, _, _ = other.Ask("", handlerstest.LongQuestion)
	id = c.ID()
	other.Restart()
	if err := other.Caches.Remove(id); err != nil {
		t.Fatal(err)
	}
	_, cold, again := other.Ask(id, "And now once more.")
	if cold.Usage.CachedTokens != 0 || again != said || cold.LogProb != warm.LogProb || again == "" {
		t.Errorf("with %d cached tokens %q, %v; with %d %q, %v", warm.Usage.CachedTokens, said, warm.LogProb, cold.Usage.CachedTokens, again, cold.LogProb)
	}
}

func TestAStoredCacheIsDeletedWithItsChat(t *testing.T) {
	caches, err := kvfile.OpenDir(filepath.Join(t.TempDir(), "kv"))
	if err != nil {
		t.Fatal(err)
	}
	db := handlerstest.OpenStore(t)
	open := func() *live.Service {
		s := live.New(&handlerstest.FakeEngine{}, live.Options{Store: db, KVFiles: caches})
		t.Cleanup(s.Close)
		return s
	}
	chats := open()
	anna, err := db.AddPerson(t.Context(), "Anna")
	if err != nil {
		t.Fatal(err)
	}
	start := func(who access.Principal, temporary bool) string {
		c, err := chats.Start(t.Context(), who, live.Question{Text: "hi", Settings: setting.Default()}, temporary)
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
	stored, deleted, temporary, ofAnna := start(access.Local, false), start(access.Local, false), start(access.Local, true), start(access.Of(anna), false)
	pruned := start(access.Local, false)
	if !has(stored) || !has(deleted) || !has(ofAnna) || has(temporary) {
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
	for chats.Running(access.Local, pruned) {
		time.Sleep(time.Millisecond)
	}
	if err := chat.Prune(t.Context(), access.Local, answers[len(answers)-1].ID); err != nil || has(pruned) {
		t.Errorf("the file of a chat of which a branch was deleted: %v, %v", has(pruned), err)
	}
	if err := db.ErasePerson(t.Context(), anna.ID); err != nil {
		t.Fatal(err)
	}
	if chats.Forget(anna.ID); has(ofAnna) || !has(stored) {
		t.Error("the file of a person who was removed is still there, or that of another is not")
	}
	if err := caches.Allow("leftover"); err != nil {
		t.Fatal(err)
	}
	chats.Close()
	if open(); has("leftover") || !has(stored) {
		t.Error("a start does not delete the files of chats that are not there")
	}
	chats = open()
	if err := chats.Disk.SetKVLimit(t.Context(), access.Local, 0); err != nil || has(stored) {
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
	e := handlerstest.OpenGuide(t, func(o *engine.Options) { o.KVDir = path })
	got := handlerstest.Post(t, handlerstest.Server(t, e), "/v1/generate", `{"prompt":"`+handlerstest.LongQuestion+`","max_tokens":20,"kv_file":{"name":"victim","limit":1000000000}}`)
	e.Close()
	if s, err := caches.Stored("victim"); err != nil || s.Bytes != 0 || !strings.Contains(got.Body, `"done"`) {
		t.Errorf("a client of the API has written %d bytes, %v; it got %d", s.Bytes, err, got.Status)
	}
}
