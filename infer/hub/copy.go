package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"m40-llm/infer"
)

// copyName is what a copy of a model may be called: it becomes the name of a file.
var copyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,95}$`)

// Copy gives the model called name another name as well. Both are the same file on the disk, which is
// there until both are removed.
func (h *Hub) Copy(name, as string) error {
	if !copyName.MatchString(as) {
		return &infer.Error{Code: infer.CodeInvalid, Param: "destination",
			Message: fmt.Sprintf("%.100q cannot be the name of a copy: use up to 96 letters, digits, dots, colons, _ and -, the first a letter or digit", as)}
	}
	if h.dir == "" {
		return errors.New("there is no models folder to copy to; set one with --models")
	}
	entries, err := h.entries()
	if err != nil {
		return err
	}
	e, err := find(entries, name)
	switch {
	case err != nil:
		return err
	case len(e.path) > 0 && len(e.files()) > 1:
		return unusable("%q is split into %d files, and such models cannot be copied", name, len(e.files()))
	}
	if _, err := find(entries, as); err == nil {
		return unusable("a model called %q exists already: remove it first, or choose another name", as)
	}
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		return fmt.Errorf("failed to make the models folder: %w", err)
	}
	return e.linkTo(filepath.Join(h.dir, as+".gguf"))
}

// linkTo makes path another name of the model's file; a built-in model is written to it.
func (e entry) linkTo(path string) error {
	if e.path == "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			return copyFailed(err)
		}
		_, err = f.Write(e.data)
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(path)
			return copyFailed(err)
		}
		return nil
	}
	source, err := filepath.EvalSymlinks(e.path)
	if err != nil {
		return copyFailed(err)
	}
	return copyFailed(os.Link(source, path))
}

// copyFailed returns err, unless it is nil, for people.
func copyFailed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return unusable("the file of the copy exists already: remove it first, or choose another name")
	}
	return fmt.Errorf("failed to copy the model, whose file must be on the disk of the models folder: %w", err)
}
