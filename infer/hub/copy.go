package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/gguf"
)

// Copy gives the model called from a second name, to, in the models folder, and returns the model
// under it. Where the file system can, both share the same data on the disk. to is a name, with one
// or two folders before it if it has slashes, and must not exist yet.
func (h *Hub) Copy(ctx context.Context, from, to string) (infer.ModelInfo, error) {
	entries, err := h.entries()
	if err != nil {
		return infer.ModelInfo{}, err
	}
	e, err := find(entries, from)
	if err != nil {
		return infer.ModelInfo{}, err
	}
	if _, err := find(entries, to); err == nil {
		return infer.ModelInfo{}, unusable("a model called %.80q exists already: remove it first, or give another name", to)
	}
	files, err := h.copies(e, to)
	if err != nil {
		return infer.ModelInfo{}, err
	}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return infer.ModelInfo{}, fmt.Errorf("failed to create the models folder: %w", err)
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return infer.ModelInfo{}, fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	for i, file := range files {
		if err = copyInto(ctx, root, h.dir, e, i, file); err != nil {
			for _, made := range files[:i] {
				err = errors.Join(err, removeIfExists(root, made))
			}
			removeEmpty(root, path.Dir(file))
			return infer.ModelInfo{}, fmt.Errorf("failed to copy %s: %w", from, err)
		}
	}
	made := filepath.Join(h.dir, filepath.FromSlash(files[0]))
	if err := h.copyCompanion(ctx, root, e, made, files[0]); err != nil {
		return infer.ModelInfo{}, fmt.Errorf("%s was copied without the file with which it reads pictures: %w", from, err)
	}
	return h.modelAt(made)
}

// copyCompanion copies the companion file of e for its copy, whose path is made, unless that finds one there.
func (h *Hub) copyCompanion(ctx context.Context, root *os.Root, e entry, made, file string) error {
	companion := h.companionOf(e)
	if companion == "" || h.companionOf(newEntry(made, made)) != "" {
		return nil
	}
	return copyInto(ctx, root, h.dir, newEntry(companion, companion), 0, path.Join(path.Dir(file), "mmproj-"+gguf.ModelName(path.Base(file))+".gguf"))
}

// copies returns the files of the copy of e called to, relative to the models folder.
func (h *Hub) copies(e entry, to string) (files []string, err error) {
	base := strings.TrimSuffix(to, ".gguf") + ".gguf"
	switch err := checkFile(base); {
	case h.dir == "":
		return nil, errors.New("there is no models folder to copy to; set one with --models")
	case err != nil || strings.Count(base, "/") > 2 || strings.Contains("/"+base, "/.") || len(gguf.Parts(base)) > 1:
		return nil, fault.Invalid("destination", "%.80q cannot be the name of a model; give one such as mine, or folder/mine", to)
	}
	files = []string{base}
	if count := len(e.files()); count > 1 {
		files = nil
		for i := range count {
			files = append(files, fmt.Sprintf("%s-%05d-of-%05d.gguf", strings.TrimSuffix(base, ".gguf"), i+1, count))
		}
	}
	for _, file := range files {
		if _, err := os.Lstat(filepath.Join(h.dir, filepath.FromSlash(file))); !errors.Is(err, fs.ErrNotExist) {
			return nil, unusable("the file of a model called %.80q exists already: remove it first, or give another name", to)
		}
	}
	return files, nil
}

// copyInto makes file, inside root, a copy of file i of the model e: a link if that is possible.
func copyInto(ctx context.Context, root *os.Root, dir string, e entry, i int, file string) error {
	if err := root.MkdirAll(path.Dir(file), 0o700); err != nil {
		return err
	}
	var from io.Reader = strings.NewReader(string(e.data))
	if e.path != "" {
		source, err := filepath.EvalSymlinks(e.files()[i])
		if err != nil {
			return err
		}
		if inside, err := filepath.Rel(dir, source); err == nil && filepath.IsLocal(inside) && root.Link(inside, file) == nil {
			return nil
		}
		f, err := os.Open(source)
		if err != nil {
			return err
		}
		defer f.Close()
		from = f
	}
	return writeCopy(ctx, root, from, file)
}

// writeCopy copies from to a partial file and renames that to file.
func writeCopy(ctx context.Context, root *os.Root, from io.Reader, file string) error {
	partial := file + ".copy"
	out, err := root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		if err = context.Cause(ctx); err == nil {
			_, err = io.CopyN(out, from, 64<<20)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		err = errors.Join(root.Chmod(partial, 0o444), root.Rename(partial, file))
	}
	if err != nil {
		root.Remove(partial)
	}
	return err
}
