package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"m40-llm/handlers/cli"
	"m40-llm/handlers/page"
	"m40-llm/store"
)

// exportPerson executes the command export.
func exportPerson(ctx context.Context, t *cli.Terminal, args []string) (err error) {
	f := cli.NewFlags("export", "[FOLDER]", `Writes everything of one person into a new folder: chats and presets as files that the playground imports,
and settings, devices, API keys and links, without their secrets, as person.json. Chats in the trash are left out. Stop the server first.`)
	dirs := folderFlags(f)
	name := f.String("person", "Owner", "NAME", "the person, as on the page People")
	rest, err := f.Parse(t, args, 1)
	if err != nil {
		return err
	}
	dir, err := dirs.dataDir(t)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, chatsFile)
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there are no chats to export: %w", err)
	}
	db, err := store.Open(ctx, store.Options{Path: path})
	if err != nil {
		return ifRunning(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := personNamed(ctx, db, *name)
	if err != nil {
		return err
	}
	target := "m40-llm export " + page.FileName(p.Name)
	if len(rest) > 0 {
		target = rest[0]
	}
	e, err := newExport(db, p, target)
	if err != nil {
		return err
	}
	defer e.root.Close()
	if err := e.write(ctx); err != nil {
		return fmt.Errorf("the export to %q is incomplete: %w", target, err)
	}
	fmt.Fprintf(t.Err, "m40-llm: exported %d chats and %d presets of %s to %s\n", e.chats, e.presets, cli.Line(p.Name), cli.Line(target))
	return nil
}

// personNamed returns the person with this name, whatever its case.
func personNamed(ctx context.Context, db *store.Store, name string) (store.Person, error) {
	people, err := db.People(ctx)
	if err != nil {
		return store.Person{}, err
	}
	var names []string
	for _, p := range people {
		if strings.EqualFold(p.Name, strings.TrimSpace(name)) {
			return p, nil
		}
		names = append(names, cli.Line(p.Name))
	}
	return store.Person{}, fmt.Errorf("there is no person %q; there are %s", name, strings.Join(names, ", "))
}

// export writes what is a person's into a folder.
type export struct {
	db             *store.Store
	person         store.Person
	root           *os.Root
	chats, presets int
}

func newExport(db *store.Store, p store.Person, folder string) (*export, error) {
	if err := os.Mkdir(folder, 0o700); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%q is there already; name a folder that is not", folder)
	} else if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	return &export{db: db, person: p, root: root}, err
}

func (e *export) write(ctx context.Context) error {
	if err := e.root.Mkdir("chats", 0o700); err != nil {
		return err
	}
	for _, list := range []store.Filter{{}, {Archived: true}} {
		if err := e.writeChats(ctx, list); err != nil {
			return err
		}
	}
	if err := e.writePresets(ctx); err != nil {
		return err
	}
	return e.writePerson(ctx)
}

// writeChats writes the chats of a list.
func (e *export) writeChats(ctx context.Context, list store.Filter) error {
	for {
		chats, err := e.db.Conversations(ctx, e.person.ID, list)
		if err != nil || len(chats) == 0 {
			return err
		}
		for _, c := range chats {
			messages, err := e.messages(ctx, c.ID)
			if err != nil {
				return err
			}
			if err := store.FillPictures(ctx, e.db, e.person.ID, c.ID, messages); err != nil {
				return err
			}
			e.chats++
			title := []rune(page.FileName(c.Title))
			name := fmt.Sprintf("chats/%04d %s.json", e.chats, string(title[:min(len(title), 60)]))
			if err := e.writeJSON(name, page.ExportChat(c, messages)); err != nil {
				return err
			}
		}
		list.After = chats[len(chats)-1].Cursor()
	}
}

// messages returns all messages of a chat.
func (e *export) messages(ctx context.Context, chat string) (all []store.Message, err error) {
	for last := int64(0); ; last = all[len(all)-1].ID {
		list, err := e.db.Messages(ctx, e.person.ID, chat, last)
		if err != nil || len(list) == 0 {
			return all, err
		}
		all = append(all, list...)
	}
}

func (e *export) writePresets(ctx context.Context) error {
	list, err := e.db.Presets(ctx, e.person.ID)
	if err != nil {
		return err
	}
	file := page.PresetFile{Format: page.PresetFormat, Presets: []page.ExportedPreset{}}
	for _, p := range list {
		file.Presets = append(file.Presets, page.ExportedPreset{Name: p.Name, System: p.System, Settings: p.Settings})
	}
	e.presets = len(list)
	return e.writeJSON("presets.json", file)
}

// exportedPerson is the file person.json.
type exportedPerson struct {
	Name     string                     `json:"name"`
	Answers  int                        `json:"answers,omitempty"` // limit of answers at once
	ADay     int                        `json:"answers_a_day,omitempty"`
	Tokens   int                        `json:"tokens_a_day,omitempty"`
	Created  time.Time                  `json:"created"`
	Settings map[string]json.RawMessage `json:"settings"`
	Devices  []exportedCredential       `json:"devices"`
	Keys     []exportedCredential       `json:"api_keys"`
	Links    []exportedLink             `json:"links"`
}

// exportedCredential is a device or an API key, without its secret, of which only a hash is stored.
type exportedCredential struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Used    time.Time `json:"used,omitzero"`
}

// exportedLink is a link to a chat, without its secret.
type exportedLink struct {
	Chat    string    `json:"chat"` // id
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero"`
}

func (e *export) writePerson(ctx context.Context) error {
	out := exportedPerson{Name: e.person.Name, Answers: e.person.Limits.AtOnce, ADay: e.person.Limits.Answers, Tokens: e.person.Limits.Tokens, Created: e.person.Created}
	var err error
	if out.Settings, err = e.db.Settings(ctx, e.person.ID); err != nil {
		return err
	}
	devices, err := e.db.Devices(ctx, e.person.ID)
	if err != nil {
		return err
	}
	for _, d := range devices {
		out.Devices = append(out.Devices, exportedCredential{d.Label, d.Created, d.Seen})
	}
	keys, err := e.db.Keys(ctx, e.person.ID)
	if err != nil {
		return err
	}
	for _, k := range keys {
		out.Keys = append(out.Keys, exportedCredential{k.Name, k.Created, k.Used})
	}
	links, err := e.db.Shares(ctx)
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Owner == e.person.ID {
			out.Links = append(out.Links, exportedLink{l.Conversation, l.Created, l.Expires})
		}
	}
	return e.writeJSON("person.json", out)
}

func (e *export) writeJSON(name string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return e.root.WriteFile(name, data, 0o600)
}
