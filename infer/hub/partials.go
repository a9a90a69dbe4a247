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
)

// Folder returns the models folder and the bytes that its disk can take; 0: unknown.
func (h *Hub) Folder() (dir string, free int64) {
	free, err := freeDisk(existing(h.dir))
	if err != nil {
		return h.dir, 0
	}
	return h.dir, free
}

// Partials lists the downloads that are not complete, by file: those that are running
// and those that were stopped. Name is empty where nobody noted it.
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
		if j.Size <= 0 || j.Offset < 0 || j.Offset > j.Size {
			continue
		}
		list = append(list, infer.Download{
			Name: j.Name, File: file, Source: j.Source, Size: j.Size, SHA256: j.SHA256, Quant: quantOf(file), Partial: j.Offset,
		})
	}
	return list, nil
}

// partialFiles returns the files that parts are here of, as Download.File has them.
func (h *Hub) partialFiles() (files []string, err error) {
	if h.dir == "" {
		return nil, nil
	}
	err = filepath.WalkDir(h.dir, func(at string, d fs.DirEntry, err error) error {
		model, isPartial := strings.CutSuffix(at, partialSuffix)
		if err != nil || d.IsDir() || !isPartial {
			return nil // what cannot be read must not hide the others
		}
		file, err := filepath.Rel(h.dir, model)
		if err == nil {
			files = append(files, filepath.ToSlash(file))
		}
		return nil
	})
	return files, err
}

// Discard deletes what is here of the download of file, and the folders that it leaves
// empty. A model that is in the file's place stays. It fails while the download runs.
func (h *Hub) Discard(file string) error {
	files, err := h.partialFiles()
	if err != nil {
		return err
	}
	if !slices.Contains(files, file) {
		return nil // nothing came yet
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	if err := discard(root, file); err != nil {
		return err
	}
	removeEmpty(root, path.Dir(file))
	return nil
}

// discard deletes what is here of the download of file, unless somebody downloads it.
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

// removeEmpty removes dir and the folders around it, as far as they are empty.
func removeEmpty(root *os.Root, dir string) {
	for ; dir != "."; dir = path.Dir(dir) {
		if root.Remove(dir) != nil {
			return
		}
	}
}
