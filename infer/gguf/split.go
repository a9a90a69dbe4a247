package gguf

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxSplit is the largest number of files of a split model. Published models have a few dozen.
const maxSplit = 1024

// partName matches the name of a file of a split model: NAME-00002-of-00003.gguf.
var partName = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})(\.(?i:gguf))$`)

// PartName takes the name of a file of a split model apart: name is that of the model with its
// extension, part counts from 1. ok is false for every other file.
func PartName(file string) (name string, part, count int, ok bool) {
	m := partName.FindStringSubmatch(file)
	if m == nil {
		return "", 0, 0, false
	}
	part, _ = strconv.Atoi(m[2])
	count, _ = strconv.Atoi(m[3])
	if part < 1 || part > count || count > maxSplit {
		return "", 0, 0, false
	}
	return m[1] + m[4], part, count, true
}

// ModelName returns the name of the model in a file: without .gguf, and without the number of the
// file if the model is split.
func ModelName(file string) string {
	if whole, _, _, ok := PartName(file); ok {
		file = whole
	}
	if ext := filepath.Ext(file); strings.EqualFold(ext, ".gguf") {
		return strings.TrimSuffix(file, ext)
	}
	return file
}

// Parts returns the paths of all files of the split model that the file at path belongs to, by
// its name, or path alone.
func Parts(path string) []string {
	name, _, count, ok := PartName(path)
	if !ok {
		return []string{path}
	}
	ext := filepath.Ext(name)
	parts := make([]string, count)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s-%05d-of-%05d%s", name[:len(name)-len(ext)], i+1, count, ext)
	}
	return parts
}

// SplitCount returns the number of files of the model, 1 unless it is split.
func (f *File) SplitCount() (int, error) {
	count, err := Optional(f.Uint, "split.count", 1)
	if err == nil && count > maxSplit {
		err = fmt.Errorf("split.count is %d, more than %d", count, maxSplit)
	}
	return max(int(count), 1), err
}

// openSplit opens all files of the split model that the file at path is one of count of.
func openSplit(path string, count int) (*File, error) {
	paths := Parts(path)
	if len(paths) != count {
		return nil, fmt.Errorf("%s: it is one of the %d files of a split model, and its name must end with its number to find the others, as in NAME-00001-of-%05d.gguf",
			path, count, count)
	}
	var parts []*File
	for i, path := range paths {
		part, err := openOne(path)
		if err != nil {
			closeAll(parts)
			return nil, fmt.Errorf("file %d of %d of a split model: %w", i+1, count, err)
		}
		parts = append(parts, part)
	}
	whole, err := Join(parts)
	if err != nil {
		closeAll(parts)
		return nil, fmt.Errorf("%s: %w", filepath.Dir(path), err)
	}
	return whole, nil
}

func closeAll(files []*File) {
	for _, f := range files {
		f.Close()
	}
}

// Join returns the split model whose files are parts, in order, or the only one of them. Closing
// it closes them. After an error they are as before.
func Join(parts []*File) (*File, error) {
	if count, err := parts[0].SplitCount(); len(parts) == 1 && (err != nil || count == 1) {
		return parts[0], err
	}
	whole := &File{index: map[string]int{}}
	for i, part := range parts {
		if err := whole.join(part, i, len(parts)); err != nil {
			return nil, fmt.Errorf("file %d of %d of a split model: %w", i+1, len(parts), err)
		}
	}
	want, err := Optional(whole.Uint, "split.tensors.count", uint64(len(whole.tensors)))
	if err == nil && want != uint64(len(whole.tensors)) {
		err = fmt.Errorf("the split model has %d tensors according to its header, and %d in its files", want, len(whole.tensors))
	}
	return whole, err
}

// join adds file number i (from 0) of count. The metadata are those of the first.
func (f *File) join(part *File, i, count int) error {
	number, err := part.Uint("split.no")
	if err != nil {
		return err
	}
	if of, err := part.SplitCount(); err != nil || of != count || number != uint64(i) {
		return fmt.Errorf("its header says that it is file %d of %d; was it renamed?", number+1, of)
	}
	for _, t := range part.tensors {
		if _, ok := f.index[t.Name]; ok {
			return fmt.Errorf("tensor %.80q is in an earlier file too", t.Name)
		}
		f.index[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	if i == 0 {
		f.version, f.keys, f.values = part.version, part.keys, part.values
	}
	f.head = append(f.head, part.head...)
	f.size += part.size
	f.maps = append(f.maps, part.maps...)
	return nil
}
