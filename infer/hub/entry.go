package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
)

// entry is a model of the catalog: a file or a built-in one.
type entry struct {
	name      string // unique: short, or qualified if that is ambiguous
	short     string // file name without .gguf
	qualified string // short with its folder
	path      string // absolute; empty for a built-in model
	data      []byte // the file of a built-in model
}

func newEntry(path, qualified string) entry {
	trim := func(s string) string {
		if ext := filepath.Ext(s); strings.EqualFold(ext, ".gguf") {
			return strings.TrimSuffix(s, ext)
		}
		return s
	}
	return entry{path: path, short: printableName(trim(filepath.Base(path))), qualified: printableName(filepath.ToSlash(trim(qualified)))}
}

// printableName percent-encodes the bytes of a file name that are invalid UTF-8, control
// characters or bidirectional controls, so that requests can contain it and users can read
// it.
func printableName(name string) string {
	var b strings.Builder
	for i, r := range name {
		_, size := utf8.DecodeRuneInString(name[i:])
		if r == utf8.RuneError && size == 1 || unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Bidi_Control, r) {
			for _, c := range []byte(name[i : i+size]) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

func byName(a, b entry) int { return strings.Compare(a.name, b.name) }

func (e entry) open() (*gguf.File, error) {
	if e.path == "" {
		return gguf.Parse(e.data)
	}
	return gguf.Open(e.path)
}

// reason returns the text of err without the path, which a list shows beside it.
func (e entry) reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return strings.TrimPrefix(err.Error(), e.path+": ")
}

// describe reads the header of the model. stat is nil for a built-in model; types are as in
// Options. ModelInfo.Error says why the model cannot be used.
func (e entry) describe(stat fs.FileInfo, types []gguf.Type) infer.ModelInfo {
	info := infer.ModelInfo{Name: e.name, Path: e.path, Size: int64(len(e.data)), Demo: e.path == ""}
	if stat != nil {
		info.Size, info.ModifiedUnix = stat.Size(), stat.ModTime().Unix()
	}
	f, err := e.open()
	if err == nil {
		err = readHeader(&info, f, types)
		f.Close()
	}
	if err != nil {
		info.Error = e.reason(err)
	}
	return info
}

// readHeader sets the fields of info that the header of a model file contains. It returns an
// error if the model cannot be used.
func readHeader(info *infer.ModelInfo, f *gguf.File, types []gguf.Type) error {
	architecture, err := f.Str("general.architecture")
	if err != nil {
		return err
	}
	license, err := gguf.Optional(f.Str, "general.license", "")
	if err != nil {
		return err
	}
	parts, err := gguf.Optional(f.Uint, "split.count", 1)
	if err != nil {
		return err
	}
	info.Architecture, info.License = oneLine(architecture), oneLine(license)
	info.Quant, info.Parameters = quantAndParameters(f.Tensors())
	switch {
	case parts > 1:
		return fmt.Errorf("is one of the %d parts of a split model; merge them into one file first", parts)
	case len(f.Tensors()) == 0:
		return errors.New("has a vocabulary and no weights")
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		return err
	}
	info.ContextTrain = config.ContextLength
	if err := checkTypes(f.Tensors(), types); err != nil {
		return err
	}
	info.Shape, err = placement.ShapeOf(f, config)
	return err
}

// checkTypes returns an error if a matrix has a format that is not in types.
func checkTypes(tensors []gguf.Tensor, types []gguf.Type) error {
	for _, t := range tensors {
		if types != nil && len(t.Shape) > 1 && !slices.Contains(types, t.Type) {
			var names []string
			for _, known := range types {
				names = append(names, known.String())
			}
			return fmt.Errorf("tensor %q has weights in %s, and only %s are supported; get the model in one of these formats", t.Name, t.Type, strings.Join(names, ", "))
		}
	}
	return nil
}

// quantAndParameters returns the type of most bytes and the number of weights.
func quantAndParameters(tensors []gguf.Tensor) (quant string, parameters int64) {
	bytes := map[gguf.Type]int64{}
	most := int64(0)
	for _, t := range tensors {
		parameters += int64(t.Elements())
		if bytes[t.Type] += t.Size(); bytes[t.Type] > most {
			most, quant = bytes[t.Type], t.Type.String()
		}
	}
	return quant, parameters
}

// oneLine truncates text to its first line and 80 runes, because some files have the whole
// licence in their licence field.
func oneLine(s string) string {
	s, _, _ = strings.Cut(strings.ToValidUTF8(s, "\uFFFD"), "\n")
	if runes := []rune(s); len(runes) > 80 {
		return string(runes[:79]) + "…"
	}
	return s
}
