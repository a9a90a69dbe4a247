package hub

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// Folder returns the models folder and the free bytes of its disk; 0: unknown.
func (h *Hub) Folder() (dir string, free int64) {
	free, err := freeDisk(existingParent(h.dir))
	if err != nil {
		return h.dir, 0
	}
	return h.dir, free
}

// Partials lists the incomplete downloads by file, running and stopped ones; of a split model by
// its first. Name is empty if the journal does not contain it.
func (h *Hub) Partials() ([]infer.Download, error) {
	files, err := h.partialFiles()
	if err != nil || len(files) == 0 {
		return nil, err
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return nil, fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	var list []infer.Download
	for _, file := range files {
		j := readJournal(root, file)
		if j.Size <= 0 || j.Offset < 0 || j.Offset > j.Size || !j.validAhead() {
			continue
		}
		d := infer.Download{Name: j.Name, File: file, Source: j.Source, Size: j.Size, SHA256: j.SHA256, Quant: quantOf(file), Partial: j.done()}
		if parts := gguf.Parts(file); len(parts) > 1 {
			d.File, d.Source, d.Size, d.SHA256 = parts[0], "", max(j.Total, j.Size), ""
			d.Partial += sizeOf(root, parts)
		}
		if !slices.ContainsFunc(list, func(other infer.Download) bool { return other.File == d.File }) {
			list = append(list, d)
		}
	}
	return list, nil
}

// sizeOf returns the bytes of those files that exist.
func sizeOf(root *os.Root, files []string) (size int64) {
	for _, file := range files {
		if stat, err := root.Stat(file); err == nil && stat.Mode().IsRegular() {
			size += stat.Size()
		}
	}
	return size
}

// partialFiles returns the files of incomplete downloads, in the form of Download.File.
func (h *Hub) partialFiles() (files []string, err error) {
	if h.dir == "" {
		return nil, nil
	}
	err = filepath.WalkDir(h.dir, func(at string, d fs.DirEntry, err error) error {
		model, isPartial := strings.CutSuffix(at, partialSuffix)
		if err != nil || d.IsDir() || !isPartial {
			return nil // an unreadable folder must not hide the others
		}
		file, err := filepath.Rel(h.dir, model)
		if err == nil {
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	})
	return files, err
}

// Discard deletes the incomplete download of file, with the other files of a split model, and
// the folders that become empty. A complete model of that name is not removed. It returns an error while
// the download runs.
func (h *Hub) Discard(file string) error {
	files, err := h.partialFiles()
	if err != nil {
		return err
	}
	parts := gguf.Parts(file)
	partial := slices.DeleteFunc(slices.Clone(parts), func(part string) bool { return !slices.Contains(files, part) })
	if len(partial) == 0 {
		return nil // nothing was downloaded yet
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	for _, part := range partial {
		if err := discard(root, part); err != nil {
			return err
		}
	}
	if err := removeIncomplete(root, parts); err != nil {
		return err
	}
	removeEmpty(root, path.Dir(file))
	return nil
}

// removeIncomplete deletes the files of a model, unless all are there.
func removeIncomplete(root *os.Root, files []string) error {
	there := slices.DeleteFunc(slices.Clone(files), func(file string) bool {
		_, err := root.Lstat(file)
		return err != nil
	})
	if len(there) == len(files) {
		return nil
	}
	for _, file := range there {
		if err := removeIfExists(root, file); err != nil {
			return fmt.Errorf("failed to remove a file of the model: %w", err)
		}
	}
	return nil
}

// discard deletes the incomplete download of file, or returns an error if it is running.
func discard(root *os.Root, file string) error {
	lock, err := lockPartial(root, file)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := (&partial{root: root, name: file}).discard(); err != nil {
		return fmt.Errorf("failed to remove the partial file: %w", err)
	}
	return nil
}

// removeEmpty removes dir and its parents up to the first that is not empty.
func removeEmpty(root *os.Root, dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if root.Remove(dir) != nil {
			return
		}
	}
}
