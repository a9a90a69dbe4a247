// Package hub finds models: those built into the program, the *.gguf files of the
// models folder, used where they lie, and single files that the command line names. Its
// Puller downloads others into the models folder.
//
// A request over the network can say any name, so a name never is a path: it is looked
// up in the list of what is there.
//
// A registry is as little trusted. What it says leads to public addresses over TLS only,
// its names stay names of files inside the models folder, its answers are bounded, and
// a file becomes a model when its digest is right and its header can be parsed, not
// before.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
)

// Options say where models are.
type Options struct {
	Dir     string            // the models folder; it need not exist
	Builtin map[string][]byte // models inside the program: GGUF files by name
	Types   []gguf.Type       // formats of weights that can be computed with; nil: any
}

// Hub implements infer.Catalog. Its methods may be called from several goroutines at
// once.
type Hub struct {
	dir     string
	builtin map[string][]byte
	types   []gguf.Type
	machine func() placement.Machine // nil: unknown

	mu      sync.Mutex
	allowed []string             // absolute paths, from AllowPath
	known   map[string]knownFile // what the last look at a file found, by path
}

type knownFile struct {
	size     int64
	modified int64 // nanoseconds
	info     infer.ModelInfo
}

// New returns the catalog of the models that o names.
func New(o Options) *Hub {
	dir := o.Dir
	if abs, err := filepath.Abs(dir); err == nil && dir != "" {
		dir = abs
	}
	return &Hub{dir: dir, builtin: o.Builtin, types: o.Types, known: map[string]knownFile{}}
}

// AllowPath adds the file at path, inside the models folder or not, and returns the
// name by which it can be asked for. It is for paths from the command line only.
func (h *Hub) AllowPath(path string) (name string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	h.mu.Lock()
	if !slices.Contains(h.allowed, path) {
		h.allowed = append(h.allowed, path)
	}
	h.mu.Unlock()
	entries, _ := h.entries() // allowed files are there even if the models folder cannot be read
	i := slices.IndexFunc(entries, func(e entry) bool { return e.path == path })
	return entries[i].name, nil
}

// Name returns the name of the model that a person calls arg on the command line: a name
// already, or the path of a file, which is added as AllowPath does.
func (h *Hub) Name(arg string) (string, error) {
	entries, unread := h.entries()
	e, err := find(entries, arg)
	if err == nil {
		return e.name, nil
	}
	if _, statErr := os.Stat(arg); statErr == nil {
		return h.AllowPath(arg)
	}
	if unread != nil {
		return "", unread
	}
	return "", fmt.Errorf("%w; nor is there a file of that path", err)
}

// Models implements infer.Catalog: the built-in models first, the others by name.
func (h *Hub) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	entries, err := h.entries()
	if err != nil {
		return nil, err
	}
	models := make([]infer.ModelInfo, 0, len(entries))
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		models = append(models, h.info(e))
	}
	h.forget(entries)
	return h.fit(models...), nil
}

// FitInto makes h say of models with which context they fit into a machine. It is called
// before Models and Details are.
func (h *Hub) FitInto(machine func() placement.Machine) { h.machine = machine }

// fit fills in how models fit into the machine as it is now.
func (h *Hub) fit(models ...infer.ModelInfo) []infer.ModelInfo {
	if h.machine == nil {
		return models
	}
	m := h.machine()
	for i := range models {
		if shape := models[i].Shape; shape != nil {
			fit := shape.Fit(m)
			models[i].Fit = &fit
		}
	}
	return models
}

// Open implements infer.Catalog.
func (h *Hub) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	entries, unread := h.entries()
	e, err := find(entries, name)
	if err != nil {
		if unread != nil {
			err = unread // it may be there
		}
		return nil, infer.ModelInfo{}, err
	}
	broken := func(reason string) (*gguf.File, infer.ModelInfo, error) {
		return nil, infer.ModelInfo{}, &infer.Error{Code: infer.CodeModelFile, Message: fmt.Sprintf("model %q cannot be used: %s", name, reason)}
	}
	info := h.info(e)
	if info.Error != "" {
		return broken(info.Error)
	}
	f, err := e.open()
	if err != nil {
		return broken(e.reason(err))
	}
	return f, info, nil
}

// info describes a model, from memory if its file has not changed.
func (h *Hub) info(e entry) infer.ModelInfo {
	if e.path == "" {
		return e.describe(nil, h.types)
	}
	stat, err := os.Stat(e.path)
	if err != nil {
		return infer.ModelInfo{Name: e.name, Path: e.path, Error: e.reason(err)}
	}
	h.mu.Lock()
	known, ok := h.known[e.path]
	h.mu.Unlock()
	if !ok || known.size != stat.Size() || known.modified != stat.ModTime().UnixNano() {
		known = knownFile{stat.Size(), stat.ModTime().UnixNano(), e.describe(stat, h.types)}
		h.mu.Lock()
		h.known[e.path] = known
		h.mu.Unlock()
	}
	known.info.Name = e.name // another file may have made it ambiguous since
	return known.info
}

// forget drops what is known about files that are gone.
func (h *Hub) forget(entries []entry) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.path] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for path := range h.known {
		if !there[path] {
			delete(h.known, path)
		}
	}
}

// find returns the entry called name. The folder can be said even where the name alone
// is clear.
func find(entries []entry, name string) (entry, error) {
	var others []string
	for _, e := range entries {
		if e.name == name || e.qualified == name {
			return e, nil
		}
		if e.short == name {
			others = append(others, e.name)
		}
	}
	if len(others) > 0 {
		return entry{}, notFound("%d models are called %q: ask for one of %s", len(others), name, strings.Join(others, ", "))
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.name)
	}
	const most = 20
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("and %d more", len(entries)-most))
	}
	return entry{}, notFound("there is no model called %.200q; the models here are %s", name, strings.Join(names, ", "))
}

func notFound(format string, args ...any) error {
	return &infer.Error{Code: infer.CodeNotFound, Message: fmt.Sprintf(format, args...), Param: "model"}
}

// entries lists what is there, without opening files: built-in models, then files from
// the command line, then those of the models folder. Where that folder cannot be read,
// the error comes with the others.
func (h *Hub) entries() ([]entry, error) {
	var entries []entry
	taken := map[string]bool{} // names
	for name, data := range h.builtin {
		entries = append(entries, entry{name: name, qualified: name, short: name, data: data})
		taken[name] = true
	}
	slices.SortFunc(entries, byName)

	h.mu.Lock()
	allowed := slices.Clone(h.allowed)
	h.mu.Unlock()
	for _, path := range allowed {
		e := newEntry(path, filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path)))
		for _, name := range []string{e.short, e.qualified, path} {
			if !taken[name] {
				e.name = name
				break
			}
		}
		taken[e.name] = true
		entries = append(entries, e)
	}

	paths, err := ggufFiles(h.dir)
	if err != nil {
		return entries, fmt.Errorf("failed to list the models folder: %w", err)
	}
	var found []entry
	times := map[string]int{} // how often a short name is there
	for _, path := range paths {
		if slices.Contains(allowed, path) {
			continue
		}
		e := newEntry(path, h.qualified(path))
		times[e.short]++
		found = append(found, e)
	}
	for i := range found {
		e := &found[i]
		if e.name = e.short; times[e.short] > 1 || taken[e.short] {
			e.name = e.qualified
		}
	}
	slices.SortFunc(found, byName)
	return append(entries, found...), nil
}

// qualified returns the path of a file of the models folder relative to it; the folder's
// own name stands for it where that is just the file's name.
func (h *Hub) qualified(path string) string {
	relative := strings.TrimPrefix(strings.TrimPrefix(path, h.dir), string(filepath.Separator))
	if relative == filepath.Base(path) {
		return filepath.Join(filepath.Base(h.dir), relative)
	}
	return relative
}

// ggufFiles returns the files called *.gguf in dir and in folders up to two deep, as in
// publisher/model/file.gguf.
func ggufFiles(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	var files []string
	var list func(dir string, depth int) error
	list = func(dir string, depth int) error {
		found, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, d := range found {
			path := filepath.Join(dir, d.Name())
			switch {
			case strings.HasPrefix(d.Name(), "."):
			case isDir(path, d):
				if depth > 0 {
					// A folder that cannot be read must not hide the others.
					list(path, depth-1)
				}
			case strings.EqualFold(filepath.Ext(path), ".gguf"):
				files = append(files, path)
			}
		}
		return nil
	}
	err := list(dir, 2)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return files, err
}

// isDir follows symbolic links, as people put models on another disk.
func isDir(path string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return d.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// at describes the model whose file lies at path, in the models folder.
func (h *Hub) at(path string) (infer.ModelInfo, error) {
	entries, err := h.entries()
	if err != nil {
		return infer.ModelInfo{}, err
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.path == path })
	if i < 0 {
		return infer.ModelInfo{}, fmt.Errorf("the model %s is not in its place any more", path)
	}
	return h.fit(h.info(entries[i]))[0], nil
}
