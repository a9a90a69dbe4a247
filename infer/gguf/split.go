package gguf

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
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
	whole := &File{index: map[string]int{}}
	for i, path := range paths {
		if err := whole.join(path, i, count); err != nil {
			whole.Close()
			return nil, err
		}
	}
	want, err := Optional(whole.Uint, "split.tensors.count", uint64(len(whole.tensors)))
	if err == nil && want != uint64(len(whole.tensors)) {
		err = fmt.Errorf("its header says that the split model has %d tensors, its files have %d", want, len(whole.tensors))
	}
	if err != nil {
		whole.Close()
		return nil, fmt.Errorf("%s: %w", paths[0], err)
	}
	return whole, nil
}

// join opens file number i (from 0) of count and adds it to a split model. The metadata are those
// of the first.
func (f *File) join(path string, i, count int) error {
	part, err := openOne(path)
	if err != nil {
		return fmt.Errorf("file %d of %d of a split model: %w", i+1, count, err)
	}
	f.maps = append(f.maps, part.maps...)
	number, err := part.Uint("split.no")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if of, err := part.SplitCount(); err != nil || of != count || number != uint64(i) {
		return fmt.Errorf("%s: its header says that it is file %d of %d of a split model, its name %d of %d; was it renamed?", path, number+1, of, i+1, count)
	}
	for _, t := range part.tensors {
		if _, ok := f.index[t.Name]; ok {
			return fmt.Errorf("%s: tensor %.80q is in an earlier file of the split model too", path, t.Name)
		}
		f.index[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	if i == 0 {
		f.version, f.keys, f.values = part.version, part.keys, part.values
	}
	f.head = append(f.head, part.head...)
	f.size += part.size
	return nil
}
