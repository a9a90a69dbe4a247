package hub

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/gguf"
	"m40-llm/infer/model"
	"m40-llm/infer/placement"
	"m40-llm/infer/tokenizer"
)

// entry is a model of the catalog: a file, several of a split model, or a built-in one.
type entry struct {
	name      string // unique: short, or qualified if that is ambiguous
	short     string // file name without .gguf and number of the part
	qualified string // short with its folder
	path      string // absolute, of the first file; empty for a built-in model
	data      []byte // the file of a built-in model
}

// key identifies the model among all others of a Hub.
func (e entry) key() string { return cmp.Or(e.path, e.name) }

func newEntry(path, qualified string) entry {
	return entry{
		path:      gguf.Parts(path)[0],
		short:     printableName(gguf.ModelName(filepath.Base(path))),
		qualified: printableName(filepath.ToSlash(gguf.ModelName(qualified))),
	}
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

// files returns the paths of the model's files.
func (e entry) files() []string { return gguf.Parts(e.path) }

// partName returns the name of one of the model's files, without .gguf.
func (e entry) partName(file string) string {
	base := filepath.Base(file)
	return printableName(strings.TrimSuffix(base, filepath.Ext(base)))
}

// isPart reports whether the model is split and name is one of its files, with or without its
// folder.
func (e entry) isPart(name string) bool {
	if len(e.files()) == 1 {
		return false
	}
	return slices.ContainsFunc(e.files(), func(file string) bool {
		part := e.partName(file)
		return name == part || name == path.Join(path.Dir(e.qualified), part)
	})
}

// isIncomplete reports whether the model is split and one of its files is not there but an
// incomplete download of it is.
func (e entry) isIncomplete() bool {
	return len(e.files()) > 1 && slices.ContainsFunc(e.files(), func(file string) bool {
		_, err := os.Lstat(file)
		_, partialErr := os.Lstat(file + partialSuffix)
		return err != nil && partialErr == nil
	})
}

// fileState is what a change of a model's files changes.
type fileState struct {
	size     int64 // bytes of all files
	modified int64 // nanoseconds, of the file that changed last
}

// stat returns the state of the model's files, zero for a built-in model, or an error if none of them exists.
func (e entry) stat() (state fileState, err error) {
	if e.path == "" {
		return fileState{}, nil
	}
	there := false
	for _, file := range e.files() {
		stat, statErr := os.Stat(file)
		if statErr != nil {
			err = statErr
			continue
		}
		there = true
		state.size += stat.Size()
		state.modified = max(state.modified, stat.ModTime().UnixNano())
	}
	if there {
		return state, nil
	}
	return fileState{}, err
}

// reason returns the text of err without the path, which a list shows next to it; of a split model
// without its folder.
func (e entry) reason(err error) string {
	if len(e.files()) > 1 {
		return strings.ReplaceAll(err.Error(), filepath.Dir(e.path)+string(filepath.Separator), "")
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return strings.TrimPrefix(err.Error(), e.path+": ")
}

// describe reads the header of the model. state is zero for a built-in model; types are as in
// Options. ModelInfo.Error says why the model cannot be used.
func (e entry) describe(state fileState, types []gguf.Type) infer.ModelInfo {
	info := infer.ModelInfo{Name: e.name, Path: e.path, Size: int64(len(e.data)), Demo: e.path == ""}
	if !info.Demo {
		info.Size, info.ModifiedUnix = state.size, state.modified/1e9
	}
	f, err := e.open()
	if err == nil {
		err = readHeader(&info, f, types)
		f.Close()
	}
	if err != nil {
		_, info.Unsupported = errors.AsType[*model.UnsupportedError](err)
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
	info.Architecture, info.License = oneLine(architecture), oneLine(license)
	info.Quant, info.Parameters = quantAndParameters(f.Tensors())
	all, err := gguf.Optional(f.Uint, "split.tensors.count", 0)
	switch {
	case err != nil:
		return err
	case uint64(len(f.Tensors())) < all:
		return errors.New("is one file of a split model; put the others into the same folder")
	case len(f.Tensors()) == 0:
		return errors.New("has a vocabulary and no weights")
	}
	config, err := model.ReadConfig(f)
	if err != nil {
		return err
	}
	info.ContextTrain = config.ContextLength
	info.Experts, info.ExpertsUsed = config.Experts()
	info.Sampling = suggestion(f)
	switch {
	case config.Ranks():
		info.Ranks = true
	case config.Embeds():
		info.Embedding = config.VectorDim()
	}
	if info.Writes() {
		info.Continues = !slices.ContainsFunc(f.Keys(), isTemplate)
		info.TemplateProblem = chatformat.TemplateProblems(f)
	}
	if err := checkTypes(f.Tensors(), types); err != nil {
		return err
	}
	if _, err := tokenizer.New(f); err != nil {
		return err
	}
	info.Shape, err = placement.ShapeOf(f, config)
	return err
}

// checkTypes returns an error if a tensor has an unknown format, or if a matrix has one that is not in
// types. Nil types contain all.
func checkTypes(tensors []gguf.Tensor, types []gguf.Type) error {
	for _, t := range tensors {
		why := ""
		switch {
		case t.Type.IsNewer():
			why = fmt.Sprintf("of %s, which is newer than this program; update m40-llm, or", t.Type)
		case t.Type.IsRemoved():
			why = fmt.Sprintf("in %s, which was taken out of the format;", t.Type)
		case types != nil && len(t.Shape) > 1 && !slices.Contains(types, t.Type):
			why = fmt.Sprintf("in %s, which is not supported;", t.Type)
		default:
			continue
		}
		if types == nil {
			return fmt.Errorf("tensor %q has weights %s get the model in another format", t.Name, why)
		}
		return fmt.Errorf("tensor %q has weights %s get the model in %s", t.Name, why, instead(t.Type, types))
	}
	return nil
}

// instead lists up to three formats of types to get instead of t, for a sentence: those of about its
// size, and those that most models exist in.
func instead(t gguf.Type, types []gguf.Type) string {
	similar := map[gguf.Type][]gguf.Type{
		gguf.Q1_0: {gguf.IQ1_M},
		gguf.Q2_0: {gguf.TQ2_0, gguf.Q2_K},
	}
	var names []string
	for _, t := range slices.Concat(similar[t], []gguf.Type{gguf.Q4_K, gguf.Q8_0, gguf.Q4_0, gguf.F16, gguf.F32}) {
		if slices.Contains(types, t) && len(names) < 3 {
			names = append(names, t.String())
		}
	}
	if len(names) < 2 {
		return gguf.Names(types)
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
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
