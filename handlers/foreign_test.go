package handlers_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"m40-llm/handlers/access"
	"m40-llm/handlers/handlerstest"
)

func TestImport_OfAnotherProgramReportsWhatItLeftOut(t *testing.T) {
	server, chats := handlerstest.ServeStored(t, handlerstest.NewScript())
	chat := func(title, text string) string {
		return `{"title":"` + title + `","current_node":"b","mapping":{"a":{"parent":null,"children":["c","b"],"message":{"author":{"role":"user"},"content":{"content_type":"text","parts":["What is moss?",{"picture":1}]}}},` +
			`"b":{"parent":"a","children":[],"message":{"author":{"role":"assistant"},"content":{"content_type":"text","parts":["` + text + `"]}}},` +
			`"c":{"parent":"a","children":[],"message":{"author":{"role":"assistant"},"content":{"content_type":"text","parts":["Another."]}}}}}`
	}
	file := "[" + chat("Moss", "A plant.") + "," + chat("Long", strings.Repeat("x", 5<<20)) + `,{"title":"Empty","mapping":{}},` + chat("Lichen", "Two beings.") + "]"
	got := handlerstest.Post(t, server, "/import", file, "Origin", server.URL, "Accept", "application/json")
	var made struct {
		Chat, Title, Program string
		Chats, Messages      int
		LeftOut              []string `json:"left_out"`
	}
	if err := json.Unmarshal([]byte(got.Body), &made); err != nil || got.Status != http.StatusCreated {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	if made.Title != "Moss" || made.Program != "ChatGPT" || made.Chats != 2 || made.Messages != 6 {
		t.Errorf("got %+v", made)
	}
	for _, want := range []string{"The chat “Long” was left out: ", "The chat “Empty” was left out: it has no messages.", "Pictures and other files: 3."} {
		if !slices.ContainsFunc(made.LeftOut, func(text string) bool { return strings.HasPrefix(text, want) }) {
			t.Errorf("%q is not among %q", want, made.LeftOut)
		}
	}
	conversation, list, err := chats.Tree(t.Context(), access.Local, made.Chat)
	if err != nil || len(list) != 3 || conversation.Leaf != list[2].ID || list[2].Text != "A plant." || list[1].Text != "Another." {
		t.Errorf("the chat is %+v, %+v, %v", conversation, list, err)
	}

	page := handlerstest.Post(t, server, "/import", "["+chat("Moss", "A plant.")+"]", "Origin", server.URL, "Accept", handlerstest.BrowserAccept)
	if page.Status != http.StatusCreated || !strings.Contains(page.Body, "Imported 1 chat of ChatGPT with 3 messages. Left out: Pictures and other files: 1.") {
		t.Errorf("without scripts: got %d: %s", page.Status, page.Body)
	}
	none := handlerstest.Post(t, server, "/import", `[{"title":"Empty","mapping":{}}]`, "Origin", server.URL, "Accept", "application/json")
	if none.Status != http.StatusBadRequest || !strings.Contains(none.Body, "nothing was imported: the chat “Empty”") {
		t.Errorf("nothing: got %d: %s", none.Status, none.Body)
	}
}

// An imported answer can be continued and answered again, as one of this program.
func TestImport_OfAnotherProgramGoesOn(t *testing.T) {
	engine := handlerstest.NewScript()
	server, chats := handlerstest.ServeStored(t, engine)
	file := `{"name":"Moss","messages":[{"versions":[{"type":"singleStep","role":"user","content":[{"type":"text","text":"What is moss?"}]}],"currentlySelected":0},{"versions":[{"type":"multiStep","role":"assistant","steps":[{"type":"contentBlock","content":[{"type":"text","text":"A plant."}]}]}],"currentlySelected":0}]}`
	got := handlerstest.Post(t, server, "/import", file, "Origin", server.URL, "Accept", "application/json")
	var made struct{ Chat string }
	if err := json.Unmarshal([]byte(got.Body), &made); err != nil || got.Status != http.StatusCreated {
		t.Fatalf("got %d: %s", got.Status, got.Body)
	}
	handlerstest.Submit(t, server, "/c/"+made.Chat, map[string][]string{"text": {"And lichen?"}})
	a := engine.Next(t)
	var said []string
	for _, m := range a.Request.Messages {
		said = append(said, m.Role+": "+m.Content)
	}
	if want := []string{"user: What is moss?", "assistant: A plant.", "user: And lichen?"}; !slices.Equal(said, want) {
		t.Errorf("the model gets %q, want %q", said, want)
	}
	a.Finish()
	export := handlerstest.Call(t, server, "GET", "/c/"+made.Chat+"/export.json", "")
	again := handlerstest.Post(t, server, "/import", export.Body, "Origin", server.URL, "Accept", "application/json")
	if again.Status != http.StatusCreated {
		t.Errorf("its export is not imported: %d: %s", again.Status, again.Body)
	}
	if _, err := chats.Chat(t.Context(), access.Local, made.Chat); err != nil {
		t.Error(err)
	}
}
