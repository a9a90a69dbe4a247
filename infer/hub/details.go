package hub

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// Details returns the types of tensors, the chat template and the metadata of a model. It
// also works for a model that cannot be used, if its file can be parsed.
func (h *Hub) Details(name string) (infer.ModelDetails, error) {
	entries, listErr := h.entries()
	e, err := find(entries, name)
	if err != nil {
		if listErr != nil {
			err = listErr // it may be there
		}
		return infer.ModelDetails{}, err
	}
	info := h.info(e)
	h.addCompanion(&info, e)
	d := infer.ModelDetails{ModelInfo: h.fit(info)[0], Companion: info.Companion, Types: []infer.TensorType{}, Metadata: []infer.Metadata{}}
	f, err := e.open()
	if err != nil {
		return infer.ModelDetails{}, unusable("model %q cannot be read: %s", name, e.reason(err))
	}
	defer f.Close()
	d.Types = tensorTypes(f.Tensors())
	source, file, err := h.ownTemplate(e)
	if err != nil {
		return infer.ModelDetails{}, unusable("the chat template of model %q cannot be read: %s", name, err)
	}
	if source == "" {
		source, err = f.Str("tokenizer.chat_template")
	}
	if err == nil {
		sum := sha256.Sum256([]byte(source))
		d.Template = &infer.Template{SHA256: hex.EncodeToString(sum[:]), Bytes: len(source), Source: source, File: file}
	}
	for _, key := range f.Keys() {
		d.Metadata = append(d.Metadata, infer.Metadata{Key: shorten(key), Value: valueOf(f, key)})
	}
	return d, nil
}

// tensorTypes counts tensors by type, the type with most bytes first.
func tensorTypes(tensors []gguf.Tensor) []infer.TensorType {
	types := []infer.TensorType{}
	for _, t := range tensors {
		i := slices.IndexFunc(types, func(c infer.TensorType) bool { return c.Type == t.Type.String() })
		if i < 0 {
			i = len(types)
			types = append(types, infer.TensorType{Type: t.Type.String()})
		}
		types[i].Tensors++
		types[i].Elements += int64(t.Elements())
		types[i].Bytes += t.Size()
	}
	slices.SortStableFunc(types, func(a, b infer.TensorType) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return types
}

// valueOf formats a metadata value for display: long texts are truncated, and of arrays only
// the first elements are shown.
func valueOf(f *gguf.File, key string) string {
	const most = 5
	values, count, array, err := f.First(key, most)
	if err != nil {
		return err.Error()
	}
	shown := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case string:
			if shown[i] = shorten(v); array {
				shown[i] = strconv.Quote(shown[i])
			}
		case float32, float64:
			shown[i] = fmt.Sprintf("%.6g", v)
		default:
			shown[i] = fmt.Sprint(v)
		}
	}
	list := strings.Join(shown, ", ")
	switch {
	case !array:
		return list
	case count > most:
		return fmt.Sprintf("[%s, … %d in all]", list, count)
	}
	return "[" + list + "]"
}

// shorten truncates text to 100 runes on one line.
func shorten(s string) string {
	const most = 100
	cut := []rune(s[:min(len(s), 4*most+4)])
	for i, r := range cut {
		if r == '\n' || r == '\r' || r == '\t' {
			cut[i] = ' '
		}
	}
	if len(cut) > most {
		return strings.ToValidUTF8(string(cut[:most-1]), "\uFFFD") + "…"
	}
	return strings.ToValidUTF8(string(cut), "\uFFFD")
}
