package commands

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"m40-llm/handlers/cli"
	"m40-llm/store"
)

// exportedStore has a person, Anna, with one of everything, and words of the owner next to it.
func exportedStore(t *testing.T, path string) (anna store.Person) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if anna, err = db.AddPerson(t.Context(), "Anna"); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{anna.ID, store.OwnerID} {
		for _, m := range []store.Metadata{{Title: "a/b: ../rain of " + owner}, {Title: "archived of " + owner, Placement: store.Placement{Archived: true}}} {
			c, err := db.CreateConversation(t.Context(), owner, m)
			if err != nil {
				t.Fatal(err)
			}
			for range 600 { // more than the store returns at once
				if _, err := db.AddMessage(t.Context(), owner, c.ID, store.NewMessage{Role: store.RoleUser, Text: "words of " + owner}); err != nil {
					t.Fatal(err)
				}
			}
			_, err = db.AddShare(t.Context(), owner, store.Share{Conversation: c.ID}, store.TokenHash([]byte("link " + c.ID + strings.Repeat("-", 32))[:32]))
			if err != nil {
				t.Fatal(err)
			}
		}
		_, presetErr := db.CreatePreset(t.Context(), owner, store.Preset{Name: "preset of " + owner})
		_, deviceErr := db.AddDevice(t.Context(), store.Device{Person: owner, Label: "device of " + owner}, store.TokenHash([]byte("device " + owner + strings.Repeat("-", 32))[:32]))
		_, keyErr := db.AddKey(t.Context(), owner, "key of "+owner, store.TokenHash([]byte("key " + owner + strings.Repeat("-", 32))[:32]))
		if err := errors.Join(presetErr, deviceErr, keyErr, db.SetSetting(t.Context(), owner, "last_model", []byte(`"model of `+owner+`"`))); err != nil {
			t.Fatal(err)
		}
	}
	return anna
}

func TestExport_WritesEverythingOfOnePersonAndNothingOfOthers(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	anna := exportedStore(t, filepath.Join(data, chatsFile))
	target := filepath.Join(t.TempDir(), "out")
	if got := execute(t, nil, "", "export", "--data", data, "--person", "Nobody", target); got.code != cli.ExitFailed || !strings.Contains(got.errs, "there are Owner, Anna") {
		t.Errorf("of a person who is not there: %d, %s", got.code, got.errs)
	}
	if got := execute(t, nil, "", "export", "--data", data, "--person", "anna", target); got.code != cli.ExitOK || !strings.Contains(got.errs, "exported 2 chats and 1 presets of Anna") {
		t.Fatalf("got %d: %s", got.code, got.errs)
	}
	files := map[string]string{}
	err := filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(target, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("there are %d files", len(files))
	}
	all := ""
	for name, text := range files {
		all += text
		if !json.Valid([]byte(text)) || strings.Contains(text, "of "+store.OwnerID) {
			t.Errorf("%s is not JSON, or has words of another:\n%.300s", name, text)
		}
	}
	for text, want := range map[string]int{
		"words of " + anna.ID: 1200, "rain of " + anna.ID: 1, "archived of " + anna.ID: 1, "preset of " + anna.ID: 1,
		"device of " + anna.ID: 1, "key of " + anna.ID: 1, "model of " + anna.ID: 1, `"name": "Anna"`: 1, `"chat": "`: 2,
	} {
		if n := strings.Count(all, text); n != want {
			t.Errorf("%q comes %d times, want %d", text, n, want)
		}
	}
	if got := execute(t, nil, "", "export", "--data", data, "--person", "anna", target); got.code != cli.ExitFailed || !strings.Contains(got.errs, "is there already") {
		t.Errorf("into a folder that is there: %d, %s", got.code, got.errs)
	}
}
