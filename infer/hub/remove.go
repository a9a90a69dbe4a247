package hub

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// Removable returns the model or the incomplete download that Remove would delete.
func (h *Hub) Removable(name string) (infer.ModelInfo, error) {
	e, err := h.removable(name)
	if err != nil {
		return infer.ModelInfo{}, err
	}
	state, err := e.stat()
	if _, linkErr := os.Lstat(e.path); err != nil && linkErr != nil { // a link to nothing can be removed
		return infer.ModelInfo{}, err
	}
	return infer.ModelInfo{Name: e.qualified, Path: e.path, Size: state.size, ModifiedUnix: state.modified / 1e9}, nil
}

// Remove deletes the files of the model called name with its own chat template and the companion file that no other model
// reads pictures with, or an incomplete download of that name,
// and the folders that become empty. It deletes inside the models folder only.
func (h *Hub) Remove(name string) error {
	e, err := h.removable(name)
	if err != nil {
		return err
	}
	if model, isPartial := strings.CutSuffix(e.path, partialSuffix); isPartial {
		file, err := filepath.Rel(h.dir, gguf.Parts(model)[0])
		if err != nil {
			return err
		}
		return h.Discard(filepath.ToSlash(file))
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	companion, err := h.companionToRemove(e)
	if err != nil {
		return err
	}
	files := e.files()
	if companion != "" {
		files = append(files, companion)
	}
	for _, path := range files {
		file, err := filepath.Rel(h.dir, path)
		if err == nil {
			err = removeFile(root, file)
		}
		if err != nil {
			return err
		}
	}
	if file, err := filepath.Rel(h.dir, templateFile(e.path)); err == nil {
		if err := removeIfExists(root, file); err != nil {
			return fmt.Errorf("failed to remove the chat template of the model: %w", err)
		}
	}
	if file, err := filepath.Rel(h.dir, e.path); err == nil {
		removeEmpty(root, filepath.ToSlash(filepath.Dir(file)))
	}
	return nil
}

// companionToRemove returns the companion file next to a model that no other model has; empty if there is none.
func (h *Hub) companionToRemove(e entry) (string, error) {
	companion := h.companionOf(e)
	if companion == "" || filepath.Dir(companion) != filepath.Dir(e.path) || companion == h.companion {
		return "", nil
	}
	entries, err := h.entries()
	if err != nil {
		return "", err
	}
	for _, other := range entries {
		if _, isCompanion := companionStem(filepath.Base(other.path)); other.path != e.path && !isCompanion && h.companionOf(other) == companion {
			return "", nil
		}
	}
	return companion, nil
}

// removeFile deletes a file of a model, which may not be there, and its incomplete download.
func removeFile(root *os.Root, file string) error {
	if _, err := root.Lstat(file + partialSuffix); err == nil {
		if err := discard(root, file); err != nil {
			return err
		}
	}
	if err := removeIfExists(root, file); err != nil {
		return fmt.Errorf("failed to remove the model: %w", err)
	}
	return nil
}

// removable returns the model or incomplete download called name, if it may be removed.
func (h *Hub) removable(name string) (entry, error) {
	entries, err := h.entries()
	if err != nil {
		return entry{}, err
	}
	if _, err := find(entries, name); err != nil {
		if p, ok := h.findPartial(name); ok {
			return p, nil
		}
	}
	return h.inFolder(name)
}

// inFolder returns the model called name, which must be in the models folder.
func (h *Hub) inFolder(name string) (entry, error) {
	entries, err := h.entries()
	if err != nil {
		return entry{}, err
	}
	e, err := find(entries, name)
	inside := h.dir != "" && strings.HasPrefix(e.path, h.dir+string(filepath.Separator))
	switch {
	case err != nil:
		return entry{}, err
	case e.path == "":
		return entry{}, unusable("%q is built into the program and cannot be changed", name)
	case !inside:
		return entry{}, unusable("%s is outside the models folder, where models cannot be changed; do it yourself", e.path)
	}
	return e, nil
}

// findPartial returns the incomplete download of the model called name, with its folder or,
// if that is unambiguous, without.
func (h *Hub) findPartial(name string) (found entry, ok bool) {
	var short []entry
	err := filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		model, isPartial := strings.CutSuffix(path, partialSuffix)
		if err != nil || d.IsDir() || !isPartial {
			return nil
		}
		e := newEntry(model, h.qualified(model))
		e.path = path
		if e.qualified == name {
			found, ok = e, true
		} else if e.short == name {
			short = append(short, e)
		}
		return nil
	})
	if err == nil && !ok && len(short) == 1 {
		return short[0], true
	}
	return found, ok
}
