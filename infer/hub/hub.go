// Package hub lists the models that can be loaded: those built into the program, the *.gguf
// files of the models folder, and single files given on the command line. Its Puller
// downloads models into the models folder.
//
// Requests are untrusted: the name of a model is looked up in the list and never used as a
// path.
//
// Registries are untrusted, too: their addresses are contacted over TLS and must be public,
// their file names cannot leave the models folder, the size of their responses is limited,
// and a download becomes a model only after its digest and header were verified.
package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"m40-llm/infer"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
)

// Options configures a Hub.
type Options struct {
	Dir     string            // the models folder; it need not exist
	Builtin map[string][]byte // built-in models: GGUF files by name
	Types   []gguf.Type       // supported weight formats; nil: all
}

// Hub implements infer.Catalog. It is safe for concurrent use.
type Hub struct {
	dir     string
	builtin map[string][]byte
	types   []gguf.Type
	machine func() placement.Machine // nil: unknown

	template  string // see SetTemplate
	companion string // see SetCompanion

	mu      sync.Mutex
	allowed []string              // absolute paths, from AllowPath
	cache   map[string]cachedFile // descriptions of models by entry.key

	companions map[string]companionFile // by path
}

// companionFile is what a companion file needs.
type companionFile struct {
	state fileState
	bytes int64
}

type cachedFile struct {
	state fileState
	info  infer.ModelInfo
}

// New returns a Hub of the models in o.
func New(o Options) *Hub {
	dir := o.Dir
	if abs, err := filepath.Abs(dir); err == nil && dir != "" {
		dir = abs
	}
	return &Hub{dir: dir, builtin: o.Builtin, types: o.Types, cache: map[string]cachedFile{}}
}

// AllowPath adds the file at path, which may be outside the models folder, and returns its
// name in the catalog. The path must come from the command line, not from a request.
func (h *Hub) AllowPath(path string) (name string, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	path = gguf.Parts(path)[0]
	h.mu.Lock()
	if !slices.Contains(h.allowed, path) {
		h.allowed = append(h.allowed, path)
	}
	h.mu.Unlock()
	entries, _ := h.entries() // allowed files are listed even if the models folder cannot be read
	i := slices.IndexFunc(entries, func(e entry) bool { return e.path == path })
	return entries[i].name, nil
}

// Name returns the name of the model given as arg on the command line: the name of a model,
// or the path of a file, which it adds like AllowPath.
func (h *Hub) Name(arg string) (string, error) {
	entries, listErr := h.entries()
	e, err := find(entries, arg)
	if err == nil {
		return e.name, nil
	}
	if _, statErr := os.Stat(arg); statErr == nil {
		return h.AllowPath(arg)
	}
	if listErr != nil {
		return "", listErr
	}
	return "", fmt.Errorf("%w; a file of that path does not exist either", err)
}

// Models implements infer.Catalog: the built-in models first, the others by name. The files with which models read pictures
// are part of these, and not listed.
func (h *Hub) Models(ctx context.Context) ([]infer.ModelInfo, error) {
	entries, err := h.entries()
	if err != nil {
		return nil, err
	}
	models := make([]infer.ModelInfo, len(entries))
	var reads errgroup.Group
	reads.SetLimit(runtime.GOMAXPROCS(0)) // checking a large vocabulary takes about a tenth of a second
	for i, e := range entries {
		reads.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			models[i] = h.info(e)
			h.addCompanion(&models[i], e)
			return nil
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	h.pruneCache(entries)
	companions := map[string]bool{}
	for _, m := range models {
		if m.Error == "" && m.Vision {
			companions[m.Companion] = true
		}
	}
	models = slices.DeleteFunc(models, func(m infer.ModelInfo) bool { return companions[m.Path] })
	return h.fit(models...), nil
}

// SetMachine makes Models, Details and Inspect report which context fits into a machine. It
// must be called before other methods.
func (h *Hub) SetMachine(machine func() placement.Machine) { h.machine = machine }

// fit sets the Fit of models for the current state of the machine.
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

// Find returns the model called name without opening its file, which may be broken: see ModelInfo.Error. The error is an
// *fault.Error with CodeNotFound for an unknown name.
func (h *Hub) Find(name string) (infer.ModelInfo, error) {
	e, err := h.entry(name)
	if err != nil {
		return infer.ModelInfo{}, err
	}
	info := h.info(e)
	h.addCompanion(&info, e)
	return info, nil
}

// entry returns the entry called name.
func (h *Hub) entry(name string) (entry, error) {
	entries, listErr := h.entries()
	e, err := find(entries, name)
	if err != nil && listErr != nil {
		err = listErr // the model may be in the folder that could not be listed
	}
	return e, err
}

// Open implements infer.Catalog.
func (h *Hub) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	e, err := h.entry(name)
	if err != nil {
		return nil, infer.ModelInfo{}, err
	}
	broken := func(reason string) (*gguf.File, infer.ModelInfo, error) {
		return nil, infer.ModelInfo{}, &fault.Error{Code: fault.CodeModelFile, Message: fmt.Sprintf("model %q cannot be used: %s", name, reason)}
	}
	info := h.info(e)
	if info.Error != "" {
		return broken(info.Error)
	}
	h.addCompanion(&info, e)
	f, err := e.open()
	if err != nil {
		return broken(e.reason(err))
	}
	return f, info, nil
}

// info describes a model. It reads a file only if it changed since the last call.
func (h *Hub) info(e entry) infer.ModelInfo {
	state, err := e.stat()
	if err != nil {
		return infer.ModelInfo{Name: e.name, Path: e.path, Error: e.reason(err)}
	}
	h.mu.Lock()
	known, ok := h.cache[e.key()]
	h.mu.Unlock()
	if !ok || known.state != state {
		known = cachedFile{state, e.describe(state, h.types)}
		h.mu.Lock()
		h.cache[e.key()] = known
		h.mu.Unlock()
	}
	info := known.info
	info.Name = e.name                 // a new file may have made the short name ambiguous
	source, _, err := h.ownTemplate(e) // which may be new too
	switch {
	case info.Error != "":
	case err != nil:
		info.Error = fmt.Sprintf("its chat template cannot be read: %s", err)
	case source != "":
		info.ChatTemplate, info.Continues, info.TemplateProblem = source, false, ""
		if info.Writes() {
			info.TemplateProblem = chatformat.TemplateProblem(source)
		}
	}
	return info
}

// pruneCache removes files that are not in entries from the cache.
func (h *Hub) pruneCache(entries []entry) {
	there := map[string]bool{}
	for _, e := range entries {
		there[e.key()] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.cache, func(key string, _ cachedFile) bool { return !there[key] })
}

// find returns the entry called name. A name with its folder is accepted even if the short
// name is unambiguous, and that of any file of a split model, the name of a file with .gguf, and the
// name with which a model was pulled.
func find(entries []entry, name string) (entry, error) {
	e, err := findNamed(entries, name)
	if model := gguf.ModelName(name); err != nil && model != name && model != "" {
		return findNamed(entries, model)
	}
	return e, err
}

// findNamed is find for a name that is not that of a file.
func findNamed(entries []entry, name string) (entry, error) {
	var others []string
	for _, e := range entries {
		if e.name == name || e.qualified == name || e.isPart(name) {
			return e, nil
		}
		if e.short == name {
			others = append(others, e.name)
		}
	}
	if len(others) > 0 {
		return entry{}, notFound("%d models are called %q: ask for one of %s", len(others), name, strings.Join(others, ", "))
	}
	is := pulledAs(name)
	pulled := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return !is(e) })
	if len(pulled) == 1 {
		return pulled[0], nil
	}
	for _, e := range pulled {
		others = append(others, e.name)
	}
	if len(others) > 0 {
		return entry{}, notFound("%d models were pulled as %.200q: ask for one of %s", len(others), name, strings.Join(others, ", "))
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

// pulledAs returns a function that reports whether a model is where pulling name puts it, and has
// the quantisation that name asks for.
func pulledAs(name string) func(entry) bool {
	n, err := parseName(name)
	return func(e entry) bool {
		switch {
		case err != nil || n.address != nil || n.file != "":
			return false
		case n.tag != "":
			return e.qualified == n.folder()+"/"+gguf.ModelName(n.libraryFile())
		}
		return path.Dir(e.qualified) == n.folder() && (n.quant == "" || isQuant(filepath.Base(e.path), n.quant))
	}
}

func notFound(format string, args ...any) error {
	return &fault.Error{Code: fault.CodeNotFound, Message: fmt.Sprintf(format, args...), Param: "model"}
}

// entries lists the models without opening files: the built-in ones, then files from the
// command line, then those of the models folder. If that folder cannot be read, it returns
// the others and an error.
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
	times := map[string]int{} // number of models by short name
	for _, e := range h.group(paths) {
		if slices.Contains(allowed, e.path) {
			continue
		}
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

// group returns the models in files of the models folder, without their names, and without split
// models that are being downloaded. Where another model has the name of a split one, the split
// one is called by its first file.
func (h *Hub) group(paths []string) []entry {
	var found []entry
	seen, times := map[string]bool{}, map[string]int{} // by path, and number by qualified name
	for _, file := range paths {
		e := newEntry(file, h.qualified(file))
		if !seen[e.path] && !e.isIncomplete() {
			seen[e.path] = true
			times[e.qualified]++
			found = append(found, e)
		}
	}
	for i, e := range found {
		if len(e.files()) > 1 && times[e.qualified] > 1 {
			found[i].short, found[i].qualified = e.partName(e.path), path.Join(path.Dir(e.qualified), e.partName(e.path))
		}
	}
	return found
}

// qualified returns the path of a file relative to the models folder. A file directly in the
// folder gets the folder's name before it.
func (h *Hub) qualified(path string) string {
	relative := strings.TrimPrefix(strings.TrimPrefix(path, h.dir), string(filepath.Separator))
	if relative == filepath.Base(path) {
		return filepath.Join(filepath.Base(h.dir), relative)
	}
	return relative
}

// ggufFiles returns the files *.gguf in dir and in folders up to two levels deep, such as
// publisher/model/file.gguf. A folder to which links lead, too, is listed once.
func ggufFiles(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	l := folderList{}
	err := l.list(dir, 2)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(l.files)
	return l.files, err
}

// folderList is a list of the model files in folders.
type folderList struct {
	files []string
	seen  []fs.FileInfo // folders
}

// list adds the files in dir and in folders up to depth levels deeper, links to folders last.
func (l *folderList) list(dir string, depth int) error {
	info, err := os.Stat(dir)
	if err != nil || slices.ContainsFunc(l.seen, func(other fs.FileInfo) bool { return os.SameFile(info, other) }) {
		return err
	}
	l.seen = append(l.seen, info)
	found, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var links []string
	for _, d := range found {
		path := filepath.Join(dir, d.Name())
		switch {
		case strings.HasPrefix(d.Name(), "."):
		case isDir(path, d) && depth == 0:
		case d.IsDir():
			// Ignores the error, so that an unreadable folder does not hide the others.
			l.list(path, depth-1)
		case isDir(path, d):
			links = append(links, path)
		case strings.EqualFold(filepath.Ext(path), ".gguf"):
			l.files = append(l.files, path)
		}
	}
	for _, path := range links {
		l.list(path, depth-1)
	}
	return nil
}

// isDir follows symbolic links, because models may be on another disk.
func isDir(path string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return d.IsDir()
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// modelAt describes the model whose file is at path in the models folder.
func (h *Hub) modelAt(path string) (infer.ModelInfo, error) {
	entries, err := h.entries()
	if err != nil {
		return infer.ModelInfo{}, err
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.path == path })
	if i < 0 {
		return infer.ModelInfo{}, fmt.Errorf("the model file %s was removed", path)
	}
	return h.fit(h.info(entries[i]))[0], nil
}
