package hub

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
)

// Details returns all that the file of the model called name says about itself. A model
// that cannot be used has details too, as long as its file can be read.
func (h *Hub) Details(name string) (infer.ModelDetails, error) {
	entries, unread := h.entries()
	e, err := find(entries, name)
	if err != nil {
		if unread != nil {
			err = unread // it may be there
		}
		return infer.ModelDetails{}, err
	}
	d := infer.ModelDetails{ModelInfo: h.info(e), Types: []infer.TensorType{}, Metadata: []infer.Metadata{}}
	f, err := e.open()
	if err != nil {
		return infer.ModelDetails{}, unusable("model %q cannot be read: %s", name, e.reason(err))
	}
	defer f.Close()
	d.Types = tensorTypes(f.Tensors())
	if source, err := f.Str("tokenizer.chat_template"); err == nil {
		sum := sha256.Sum256([]byte(source))
		d.Template = &infer.Template{SHA256: hex.EncodeToString(sum[:]), Bytes: len(source)}
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
		types[i].Bytes += int64(len(t.Data))
	}
	slices.SortStableFunc(types, func(a, b infer.TensorType) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return types
}

// valueOf returns a metadata value as text for people: long texts cut, and of arrays the
// first elements.
func valueOf(f *gguf.File, key string) string {
	if s, err := f.Str(key); err == nil {
		return shorten(s)
	}
	if b, err := f.Bool(key); err == nil {
		return strconv.FormatBool(b)
	}
	if n, err := f.Uint(key); err == nil {
		return strconv.FormatUint(n, 10)
	}
	if n, err := f.Int(key); err == nil {
		return strconv.FormatInt(n, 10)
	}
	if x, err := f.Float(key); err == nil {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	if list, err := f.Strs(key); err == nil {
		return head(list, func(s string) string { return strconv.Quote(shorten(s)) })
	}
	if list, err := f.Ints(key); err == nil {
		return head(list, func(n int32) string { return fmt.Sprint(n) })
	}
	if list, err := f.Uints(key); err == nil {
		return head(list, func(n uint64) string { return fmt.Sprint(n) })
	}
	list, err := f.Floats(key)
	if wrong := (*gguf.TypeError)(nil); errors.As(err, &wrong) {
		return wrong.Found // an array of truth values
	}
	return head(list, func(x float32) string { return strconv.FormatFloat(float64(x), 'g', 6, 32) })
}

// head shows the first elements of a list and how many there are.
func head[T any](list []T, show func(T) string) string {
	const most = 5
	var shown []string
	for _, v := range list[:min(most, len(list))] {
		shown = append(shown, show(v))
	}
	if len(list) > most {
		return fmt.Sprintf("[%s, … %d in all]", strings.Join(shown, ", "), len(list))
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

// shorten makes one short line of text.
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
