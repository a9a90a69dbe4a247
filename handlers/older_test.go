package handlers_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"m40-llm/handlers"
	"m40-llm/handlers/handlerstest"
	"m40-llm/handlers/live"
	"m40-llm/migrations"
	"m40-llm/store"
)

// olderDatabase writes the database of version 5 that testdata/older holds, and returns its
// path. testdata/older was made with the program of that version, which wrote the exports
// next to it too.
func olderDatabase(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chats.db")
	if err := os.Chmod(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	do := func(statement string, args ...any) {
		if _, err := db.Exec(statement, args...); err != nil {
			t.Fatalf("%.60s: %v", statement, err)
		}
	}
	all, err := migrations.All()
	if err != nil {
		t.Fatal(err)
	}
	do(`CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT`)
	for _, m := range all[:5] {
		do(m.SQL)
		do(`INSERT INTO schema_migrations VALUES (?, ?, ?, 0)`, m.Version, m.Name, m.Hash)
	}
	do(`PRAGMA application_id = 0x4d34304c; PRAGMA user_version = 5`)
	rows, err := os.ReadFile("testdata/older/database.sql")
	if err != nil {
		t.Fatal(err)
	}
	do(string(rows))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// parts are what an answer of the older database says and thinks, and how much of both a
// person wrote.
type parts struct {
	reasoning, text         string
	reasoningPrefix, prefix int
}

var olderAnswers = map[int]parts{
	2:  {"It is *two*.", "Two.", 5, 0},
	4:  {"a", "b", 1, 1},
	6:  {"Hm", "", 0, 0},
	8:  {"", "Two.", 0, 0},
	10: {"", "<think> is a tag.", 0, 0},
	12: {`</think><\/think>!`, "\nYes </think> and <think>.", 18, 4},
	14: {"", "", 0, 0},
	16: {"", "", 0, 0},
	18: {"", "So:\n<think>\nno\n</think>", 0, 3},
	20: {"NUL \x00 in", "and \x00 out", 0, 0},
	22: {"", "你 <think>x", 0, 0},
	24: {"你好 é", "你好 é wordofanswer", 0, 0},
	26: {"by", "hand", 0, 0},
	27: {"", "another version", 0, 0},
	31: {"Half a </thin", "", 2, 0},
}

func TestAnOlderDatabaseIsMigratedAndExportsTheSameChats(t *testing.T) {
	stored, err := store.Open(context.Background(), store.Options{Path: olderDatabase(t), Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	engine := handlerstest.NewScript()
	chats := live.New(engine, live.Options{Store: stored})
	defer chats.Close()
	server := httptest.NewServer(handlers.New(handlers.Config{Engine: engine, Live: chats}))
	defer server.Close()

	for id, name := range map[string]string{"psbkimomgtscc2vvfyhoekmy7n": "thoughts", "abfkkfkdacv2psmxvbprhan7rt": "raw"} {
		whole := handlerstest.Call(t, server, http.MethodGet, "/c/"+id+"/export.json", "").Body
		got, want := map[string]any{}, map[string]any{}
		older, err := os.ReadFile("testdata/older/" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		for from, to := range map[string]*map[string]any{whole: &got, string(older): &want} {
			if err := json.Unmarshal([]byte(from), to); err != nil {
				t.Fatal(err)
			}
		}
		for _, m := range want["messages"].([]any) {
			m := m.(map[string]any)
			switch answer, _ := m["answer"].(map[string]any); {
			case m["role"] == "user":
			case name == "raw":
				m["reasoning"] = ""
			default:
				p := olderAnswers[int(m["id"].(float64))]
				m["text"], m["reasoning"] = p.text, p.reasoning
				for field, n := range map[string]int{"begun": p.prefix, "begun_reasoning": p.reasoningPrefix} {
					if delete(answer, field); n > 0 {
						answer[field] = float64(n)
					}
				}
			}
		}
		for i, m := range want["messages"].([]any) {
			if got := got["messages"].([]any)[i]; !reflect.DeepEqual(got, m) {
				t.Errorf("%s: message %d is exported as\n%v\nwant\n%v", name, i, got, m)
			}
		}
		delete(got, "messages")
		delete(want, "messages")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s is exported as %v, want %v", name, got, want)
		}
		// A file that the older program exported says the same when it is imported.
		var imported struct{ Chat string }
		if err := json.Unmarshal([]byte(handlerstest.PostScripted(t, server, "/import", string(older)).Body), &imported); err != nil {
			t.Fatal(err)
		}
		if again := allTexts(t, stored, imported.Chat); !reflect.DeepEqual(again, allTexts(t, stored, id)) {
			t.Errorf("%s was imported from the older export as %q", name, again)
		}
	}
	page, err := os.ReadFile("testdata/older/thoughts.md")
	if err != nil {
		t.Fatal(err)
	}
	if got := handlerstest.Call(t, server, http.MethodGet, "/c/psbkimomgtscc2vvfyhoekmy7n/export.md", "").Body; got != string(page) {
		t.Errorf("it is exported as\n%s\nwant\n%s", got, page)
	}

	for query, want := range map[string]int{"two": 3, "wordofanswer": 1, "half": 1, "Hm": 1, `"NUL"`: 1, "你好": 1, "running": 1} {
		found, err := stored.Search(context.Background(), store.OwnerID, store.Query{Text: query})
		old := 0
		for _, hit := range found.Messages {
			if hit.Message <= 31 { // the others were imported
				old++
			}
			if len(hit.Snippet.Marks) == 0 {
				t.Errorf("%q was found in message %d without a mark", query, hit.Message)
			}
		}
		if err != nil || old != want {
			t.Errorf("%q was found %d times in %+v (%v), want %d", query, old, found.Messages, err, want)
		}
	}
}

// allTexts are those of all messages of a chat, with how much of them a person wrote.
func allTexts(t *testing.T, stored *store.Store, chat string) (list []string) {
	t.Helper()
	messages, err := stored.Messages(context.Background(), store.OwnerID, chat, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		prefix := [2]int{}
		if m.Answer != nil {
			prefix = [2]int{m.Answer.ReasoningPrefix, m.Answer.Prefix}
		}
		list = append(list, fmt.Sprint(m.Role, m.State, m.Reasoning, "|", m.Text, prefix))
	}
	return list
}
