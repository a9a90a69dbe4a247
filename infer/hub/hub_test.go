package hub_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
	"m40-llm/infer/hub"
)

var _ infer.Catalog = (*hub.Hub)(nil)

// folder returns a new folder with the given files, by path.
func folder(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "models")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func models(t *testing.T, h *hub.Hub) []infer.ModelInfo {
	t.Helper()
	list, err := h.Models(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func names(t *testing.T, h *hub.Hub) []string {
	t.Helper()
	list := []string{}
	for _, m := range models(t, h) {
		list = append(list, m.Name)
	}
	return list
}

var tiny = gguftest.TinyLlama(gguftest.Llama{Type: gguf.Q8_0})

func TestModelsAreNamedAfterTheirFiles(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"an empty folder leaves the built-in model", nil, []string{"guide"}},
		{"the name of a file is that without the extension", []string{"b.gguf", "a.GGUF"}, []string{"guide", "a", "b"}},
		{"files two folders deep are found, deeper ones are not", []string{"one/a.gguf", "one/two/b.gguf", "one/two/three/c.gguf"}, []string{"guide", "a", "b"}},
		{"other files and hidden folders are ignored", []string{"a.txt", "b.gguf.partial", ".cache/c.gguf", ".d.gguf"}, []string{"guide"}},
		{"files of the same name are qualified with their folders", []string{"x.gguf", "org/x.gguf", "org/repo/x.gguf", "y.gguf"}, []string{"guide", "models/x", "org/repo/x", "org/x", "y"}},
		{"control characters and bidirectional controls are encoded", []string{"a\x1b[31mb\u202ec.gguf"}, []string{"guide", "a%1B[31mb%E2%80%AEc"}},
		{"bytes that are not UTF-8 are encoded", []string{"mod\xe9le.gguf", "é.gguf"}, []string{"guide", "mod%E9le", "é"}},
		{"a file named like the built-in model is qualified with its folder", []string{"guide.gguf"}, []string{"guide", "models/guide"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string][]byte{}
			for _, f := range c.files {
				files[f] = tiny
			}
			h := hub.New(hub.Options{Dir: folder(t, files), Builtin: map[string][]byte{"guide": tiny}})
			got := names(t, h)
			if !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for _, name := range got {
				f, info, err := h.Open(name)
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				if info.Name != name {
					t.Errorf("%q opens as %q", name, info.Name)
				}
			}
		})
	}
	t.Run("a folder that does not exist has no models", func(t *testing.T) {
		h := hub.New(hub.Options{Dir: filepath.Join(t.TempDir(), "none"), Builtin: map[string][]byte{"guide": tiny}})
		if got := names(t, h); !reflect.DeepEqual(got, []string{"guide"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a folder that cannot be listed is an error, and the built-in model still opens", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		h := hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{"guide": tiny}})
		if _, err := h.Models(context.Background()); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("Models returned %v", err)
		}
		if _, _, err := h.Open("guide"); err != nil {
			t.Error(err)
		}
		if _, _, err := h.Open("other"); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("Open of a name that may be in the folder returned %v", err)
		}
	})
	t.Run("a cancelled context ends the list", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := hub.New(hub.Options{Builtin: map[string][]byte{"guide": tiny}}).Models(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOpenAcceptsOnlyListedNames(t *testing.T) {
	outside := filepath.Join(folder(t, map[string][]byte{"secret.gguf": tiny}), "secret.gguf")
	dir := folder(t, map[string][]byte{"org/a.gguf": tiny, "other/a.gguf": tiny, "b.gguf": tiny, "org/cut.gguf": tiny[:100]})
	h := hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{"guide": tiny}})
	for _, c := range []struct {
		name, ask string
		code      fault.Code // empty: opens
		want      string     // part of the error
	}{
		{"the name from the list opens", "org/a", "", ""},
		{"the folder is accepted where it is not needed", "models/b", "", ""},
		{"the name of a file opens", "b.gguf", "", ""},
		{"the name of a file in its folder opens, in any case of the ending", "org/a.GGUF", "", ""},
		{"the name of the only file of a split model opens", "b-00001-of-00001.gguf", "", ""},
		{"the name of a file of another type is not one", "b.txt", fault.CodeNotFound, "no model called"},
		{"the name of a file that several have lists the full names", "a.gguf", fault.CodeNotFound, "ask for one of org/a, other/a"},
		{"the error for an unknown name lists the models", "c", fault.CodeNotFound, `no model called "c"; the models here are guide, b, cut, org/a, other/a`},
		{"the error for an ambiguous name lists the full names", "a", fault.CodeNotFound, "ask for one of org/a, other/a"},
		{"the error for a broken file has the reason", "cut", fault.CodeModelFile, "the file ends too early"},
		{"an absolute path is not a name", outside, fault.CodeNotFound, "no model called"},
		{"a relative path is not a name", "../models/b", fault.CodeNotFound, "no model called"},
		{"a path inside the folder is not a name", filepath.Join(dir, "b.gguf"), fault.CodeNotFound, "no model called"},
		{"the empty name does not exist", "", fault.CodeNotFound, "no model called"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, _, err := h.Open(c.ask)
			if c.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				f.Close()
				return
			}
			var e *fault.Error
			if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %v, want code %s and %q", err, c.code, c.want)
			}
		})
	}
}

func TestAllowPathReturnsAUniqueName(t *testing.T) {
	outside := folder(t, map[string][]byte{"mine.gguf": tiny, "guide.gguf": tiny, "b.gguf": tiny, "blob": tiny})
	for _, c := range []struct {
		name, file, want string
	}{
		{"a file outside the folder gets its own name", "mine.gguf", "mine"},
		{"a file without the extension is accepted", "blob", "blob"},
		{"a name of a built-in model is qualified with the folder", "guide.gguf", "models/guide"},
		{"it takes precedence over a file of the models folder", "b.gguf", "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := hub.New(hub.Options{Dir: folder(t, map[string][]byte{"b.gguf": tiny}), Builtin: map[string][]byte{"guide": tiny}})
			path := filepath.Join(outside, c.file)
			got, err := h.AllowPath(path)
			if err != nil || got != c.want {
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
			f, info, err := h.Open(got)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
			if info.Path != path {
				t.Errorf("opened %s, want %s", info.Path, path)
			}
			if again, err := h.AllowPath(path); again != got || err != nil {
				t.Errorf("the second call returned %q, %v", again, err)
			}
		})
	}
	t.Run("a file of the models folder is listed once", func(t *testing.T) {
		dir := folder(t, map[string][]byte{"b.gguf": tiny})
		h := hub.New(hub.Options{Dir: dir})
		if name, err := h.AllowPath(filepath.Join(dir, "b.gguf")); name != "b" || err != nil {
			t.Errorf("got %q, %v", name, err)
		}
		if got := names(t, h); !reflect.DeepEqual(got, []string{"b"}) {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a missing file is an error", func(t *testing.T) {
		if _, err := hub.New(hub.Options{}).AllowPath(filepath.Join(outside, "no.gguf")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

func TestNameResolvesNamesAndPaths(t *testing.T) {
	outside := filepath.Join(folder(t, map[string][]byte{"mine.gguf": tiny}), "mine.gguf")
	h := hub.New(hub.Options{Dir: folder(t, map[string][]byte{"org/a.gguf": tiny}), Builtin: map[string][]byte{"guide": tiny}})
	for _, c := range []struct{ name, arg, want string }{
		{"a name is returned unchanged", "a", "a"},
		{"a name with its folder is shortened", "org/a", "a"},
		{"a path is added", outside, "mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := h.Name(c.arg); got != c.want || err != nil {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
	t.Run("the error for anything else lists the models", func(t *testing.T) {
		_, err := h.Name("nothing.gguf")
		if err == nil || !strings.Contains(err.Error(), "the models here are guide, mine, a; a file of that path does not exist either") {
			t.Errorf("got %v", err)
		}
	})
}

func TestModelsDescribeFiles(t *testing.T) {
	long := strings.Repeat("x", 100)
	dir := folder(t, map[string][]byte{
		"good.gguf":                tiny,
		"text.gguf":                []byte("hello"),
		"vocab.gguf":               gguftest.New().Set("general.architecture", "llama").Bytes(),
		"part.gguf":                gguftest.New().Set("general.architecture", "llama").Set("split.count", uint16(3)).Bytes(),
		"lost-00002-of-00002.gguf": gguftest.SplitTinyLlama(gguftest.Llama{}, 2)[1],
		"nameless.gguf":            gguftest.New().Set("a", 1).Bytes(),
		"odd.gguf": gguftest.New().Set("general.architecture", "llama").Set("llama.context_length", "many").
			Tensor("w", gguf.F16, []int{2}, make([]byte, 4)).Bytes(),
		"foreign.gguf": gguftest.New().Set("general.architecture", "abacus").
			Tensor("w", gguf.F16, []int{2}, make([]byte, 4)).Bytes(),
		"licence.gguf": gguftest.New().Set("general.architecture", "llama").Set("general.license", "MIT "+long+"\nsecond line").
			Tensor("w", gguf.F16, []int{2}, make([]byte, 4)).Bytes(),
	})
	if err := os.Symlink("nowhere", filepath.Join(dir, "gone.gguf")); err != nil {
		t.Fatal(err)
	}
	h := hub.New(hub.Options{Dir: dir, Builtin: map[string][]byte{"guide": tiny}})
	byName := map[string]infer.ModelInfo{}
	for _, m := range models(t, h) {
		byName[m.Name] = m
	}
	t.Run("a model's header fills its description", func(t *testing.T) {
		got := byName["good"]
		if time.Since(time.Unix(got.ModifiedUnix, 0)).Abs() > time.Hour {
			t.Errorf("got modification time %d", got.ModifiedUnix)
		}
		if got.Shape == nil {
			t.Error("got no shape")
		}
		got.ModifiedUnix, got.Shape = 0, nil
		// Embedding and output 64 x 320, and 2 layers of 64 x (64+32+32+64) and
		// 3 x 64 x 128 weights; 5 norms of 64.
		want := infer.ModelInfo{Name: "good", Path: filepath.Join(dir, "good.gguf"), Size: int64(len(tiny)), Architecture: "llama", Quant: "Q8_0",
			Parameters: 2*64*320 + 2*(64*192+3*64*128) + 5*64, ContextTrain: 256, License: "MIT"}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
	t.Run("a built-in model has no path and is a demo", func(t *testing.T) {
		if got := byName["guide"]; got.Path != "" || !got.Demo || got.Size != int64(len(tiny)) || got.Quant != "Q8_0" {
			t.Errorf("got %+v", got)
		}
	})
	for name, want := range map[string]string{
		"text":     "not a GGUF file",
		"vocab":    "no weights",
		"part":     "one of the 3 files of a split model",
		"lost":     "file 1 of 2 of a split model: open lost-00001-of-00002.gguf: no such file",
		"nameless": `key "general.architecture": missing`,
		"odd":      `key "llama.context_length" is of type string`,
		"foreign":  `architecture "abacus" is not supported`,
		"gone":     "no such file",
	} {
		t.Run("a file that cannot be used is listed with the reason: "+name, func(t *testing.T) {
			if got := byName[name].Error; !strings.Contains(got, want) || strings.Contains(got, dir) {
				t.Errorf("the reason is %q, want %q in it and no path", got, want)
			}
		})
	}
	for name, m := range byName {
		if m.Unsupported != (name == "foreign") {
			t.Errorf("%s is listed with Unsupported %v", name, m.Unsupported)
		}
	}
	t.Run("a licence of many lines is truncated", func(t *testing.T) {
		if got := byName["licence"].License; !strings.HasPrefix(got, "MIT xxx") || len([]rune(got)) != 80 {
			t.Errorf("got %q", got)
		}
	})
	t.Run("weights in an unsupported format are the reason", func(t *testing.T) {
		h := hub.New(hub.Options{Dir: dir, Types: []gguf.Type{gguf.F32, gguf.F16}})
		for _, m := range models(t, h) {
			if m.Name == "good" && m.Error != `tensor "token_embd.weight" has weights in Q8_0, which is not supported; get the model in F16 or F32` {
				t.Errorf("the reason is %q", m.Error)
			}
		}
		if _, _, err := h.Open("good"); err == nil {
			t.Error("Open succeeded")
		}
	})
	t.Run("a file that was replaced is read again", func(t *testing.T) {
		path := filepath.Join(dir, "text.gguf")
		if err := os.WriteFile(path+".new", tiny, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		for _, m := range models(t, h) {
			if m.Name == "text" && m.Error != "" {
				t.Errorf("the reason is still %q", m.Error)
			}
		}
	})
	t.Run("a file that did not change is not read again", func(t *testing.T) {
		path := filepath.Join(dir, "good.gguf")
		stat, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, len(tiny)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, stat.ModTime()); err != nil {
			t.Fatal(err)
		}
		for _, m := range models(t, h) {
			if m.Name == "good" && m.Error != "" {
				t.Errorf("it was read again: %s", m.Error)
			}
		}
	})
}

// Lists, shows and opens a model while its file is overwritten in place, as by cp: truncated
// and written again. Each call returns the model or an error.
func TestModelsCanBeReadWhileAFileIsOverwritten(t *testing.T) {
	texts := make([]string, 60_000)
	for i := range texts {
		texts[i] = fmt.Sprintf("a word of a vocabulary, number %d", i)
	}
	whole := gguftest.New().Set("general.architecture", "llama").Set("tokenizer.ggml.tokens", texts).
		Tensor("w", gguf.F16, []int{2}, make([]byte, 4)).Bytes()
	dir := folder(t, map[string][]byte{"m.gguf": whole})
	path := filepath.Join(dir, "m.gguf")
	h := hub.New(hub.Options{Dir: dir})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	var read atomic.Int64
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				h.Models(ctx)
				if d, err := h.Details("m"); err == nil && len(d.Metadata) > 0 {
					read.Add(1)
				}
				if f, _, err := h.Open("m"); err == nil {
					f.Strs("tokenizer.ggml.tokens")
					f.Close()
				}
				f, err := gguf.Open(path)
				if err != nil {
					continue
				}
				if tokens, err := f.Strs("tokenizer.ggml.tokens"); err != nil || len(tokens) != len(texts) {
					t.Errorf("the opened file has %d tokens, %v", len(tokens), err)
				}
				f.Close()
			}
		})
	}
	times := 40
	if fixtures.Torture() {
		times = 2000
	}
	for range times {
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	readers.Wait()
	if _, err := h.Details("m"); err != nil {
		t.Errorf("Open of the complete file failed: %v", err)
	}
	t.Logf("%d times read", read.Load())
}

func TestDetailsOfALongArrayTakeNoMoreMemoryThanTheFile(t *testing.T) {
	whole := gguftest.New().Set("general.architecture", "llama").Set("a.numbers", make([]uint8, 16<<20)).Set("a.words", make([]string, 1<<20)).
		Tensor("w", gguf.F16, []int{2}, make([]byte, 4)).Bytes()
	h := hub.New(hub.Options{Dir: folder(t, map[string][]byte{"m.gguf": whole})})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	d, err := h.Details("m")
	runtime.ReadMemStats(&after)
	if n, most := after.TotalAlloc-before.TotalAlloc, uint64(8*len(whole)); n > most {
		t.Errorf("%d bytes were allocated, want at most %d", n, most)
	}
	want := infer.Metadata{Key: "a.numbers", Value: "[0, 0, 0, 0, 0, … 16777216 in all]"}
	if err != nil || len(d.Metadata) != 3 || d.Metadata[1] != want {
		t.Errorf("got %+v, %v", d.Metadata, err)
	}
}

func TestModelsWithTypesThatAreNotSupportedAreShownAndSayWhatToGet(t *testing.T) {
	dir := t.TempDir()
	h := hub.New(hub.Options{Dir: dir, Types: []gguf.Type{gguf.F32, gguf.F16, gguf.Q8_0, gguf.Q2_K, gguf.Q4_K, gguf.IQ1_M, gguf.TQ2_0}})
	for _, c := range []struct {
		typ  uint32
		want string
	}{
		{41, `tensor "token_embd.weight" has weights in Q1_0, which is not supported; get the model in IQ1_M, Q4_K or Q8_0`},
		{42, `tensor "token_embd.weight" has weights in Q2_0, which is not supported; get the model in TQ2_0, Q2_K or Q4_K`},
		{43, `tensor "token_embd.weight" has weights of type 43, which is newer than this program; update m40-llm, or get the model in Q4_K, Q8_0 or F16`},
		{31, `tensor "token_embd.weight" has weights in Q4_0_4_4, which was taken out of the format; get the model in Q4_K, Q8_0 or F16`},
	} {
		typ := gguf.Type(c.typ)
		t.Run(typ.String(), func(t *testing.T) {
			data := gguftest.TinyLlama(gguftest.Llama{Dim: 256, FFN: 256, Type: gguf.F16})
			const name = "token_embd.weight"
			at := bytes.Index(data, []byte(name)) + len(name) + 4 + 2*8 // after the shape of two dimensions
			binary.LittleEndian.PutUint32(data[at:], c.typ)
			if err := os.WriteFile(filepath.Join(dir, "m.gguf"), data, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := h.Details("m")
			if err != nil {
				t.Fatal(err)
			}
			if d.Error != c.want {
				t.Errorf("the reason is %q, want %q", d.Error, c.want)
			}
			if len(d.Metadata) == 0 || !slices.ContainsFunc(d.Types, func(i infer.TensorType) bool { return i.Type == typ.String() && i.Tensors == 1 && i.Bytes > 0 }) {
				t.Errorf("got %d keys and the types %v", len(d.Metadata), d.Types)
			}
		})
	}
}

func TestFoldersToWhichLinksLeadAreListedOnce(t *testing.T) {
	elsewhere := folder(t, map[string][]byte{"far.gguf": tiny})
	for _, c := range []struct {
		name, link, to string // to is relative to the models folder
		want           []string
	}{
		{"a link to the models folder itself", "a", ".", []string{"b", "c"}},
		{"a link to the folder above it", "a", "..", []string{"b", "c"}},
		{"a link to the models folder in a folder of it", "org/a", "..", []string{"b", "c"}},
		{"a link beside the folder it leads to", "a", "org", []string{"b", "c"}},
		{"a link to a folder elsewhere", "a", elsewhere, []string{"b", "c", "far"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := folder(t, map[string][]byte{"b.gguf": tiny, "org/c.gguf": tiny})
			if err := os.Symlink(c.to, filepath.Join(dir, c.link)); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, m := range models(t, hub.New(hub.Options{Dir: dir})) {
				names = append(names, m.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, c.want) {
				t.Errorf("got the models %q, want %q", names, c.want)
			}
			if _, err := os.Stat(filepath.Join(dir, "org/c.gguf")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestModelsWhoseVocabularyCannotBeUsedSaySo(t *testing.T) {
	broken := func(from, to string) []byte {
		file := bytes.Replace(gguftest.TinyLlama(gguftest.Llama{}), []byte(from), []byte(to), 1)
		if len(from) != len(to) || bytes.Equal(file, gguftest.TinyLlama(gguftest.Llama{})) {
			t.Fatalf("%q is not in the file", from)
		}
		return file
	}
	dir := folder(t, map[string][]byte{
		"merges.gguf": broken("tokenizer.ggml.merges", "tokenizer.ggml.nerges"),
		"pre.gguf":    broken("tokenizer.ggml.model\x08\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00gpt2", "tokenizer.ggml.model\x08\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00gpt9"),
		"tokens.gguf": broken("tokenizer.ggml.tokens", "tokenizer.ggml.tokenz"),
		"twice.gguf":  gguftest.TinyLlama(gguftest.Llama{Controls: []string{"<|twice|>", "<|twice|>"}}),
		"far.gguf":    gguftest.TinyLlama(gguftest.Llama{Keys: map[string]any{"tokenizer.ggml.eot_token_id": 320}}),
	})
	h := hub.New(hub.Options{Dir: dir})
	for name, want := range map[string]string{"merges": "merges", "pre": "gpt9", "tokens": "vocabulary", "twice": "are both", "far": "eot_token_id is 320"} {
		_, _, err := h.Open(name)
		var e *fault.Error
		if !errors.As(err, &e) || e.Code != fault.CodeModelFile || !strings.Contains(e.Message, want) {
			t.Errorf("%s: Open returned %v, want %q in it", name, err, want)
		}
		for _, m := range models(t, h) {
			if m.Name == name && !strings.Contains(m.Error, want) {
				t.Errorf("%s: the list says %q, want %q in it", name, m.Error, want)
			}
		}
	}
}

func TestACompanionFileIsListedOnlyWithoutAModelThatReadsPicturesWithIt(t *testing.T) {
	model := gguftest.TinyLlama(gguftest.Llama{})
	companion := gguftest.New().Set("general.architecture", "clip").Set("general.type", "mmproj").Tensor("v.x", gguf.F32, []int{1}, make([]byte, 4)).Bytes()
	for name, c := range map[string]struct {
		files map[string][]byte
		want  []string
	}{
		"beside its model":      {map[string][]byte{"see.gguf": model, "mmproj-see.gguf": companion}, []string{"see"}},
		"alone":                 {map[string][]byte{"mmproj-see.gguf": companion}, []string{"mmproj-see"}},
		"beside a broken model": {map[string][]byte{"see.gguf": []byte("GGUF"), "mmproj-see.gguf": companion}, []string{"mmproj-see", "see"}},
	} {
		var got []string
		for _, m := range models(t, hub.New(hub.Options{Dir: folder(t, c.files)})) {
			got = append(got, m.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: listed are %q, want %q", name, got, c.want)
		}
	}
}
