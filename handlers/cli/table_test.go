package cli

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
)

func TestList(t *testing.T) {
	models := []infer.ModelInfo{
		{Name: "guide", Size: 15200224, Architecture: "llama", Quant: "Q8_0", Parameters: 14_200_000, ContextTrain: 1024, License: "MIT", Demo: true},
		{Name: "evil\x1b[31m\nname", Size: 12, Error: "not a GGUF file: starts with \"\x1b]0;\""},
		{Name: "new", Size: 9_000_000_000, Architecture: "muse-spark", Unsupported: true, Error: `architecture "muse-spark" is not supported; docs/models.md lists those that are`},
		{Name: "big", Size: 4_920_000_000, Architecture: "qwen3moe", Experts: 128, ExpertsUsed: 8, Quant: "Q4_K", Parameters: 8_030_000_000, ContextTrain: 131072, Fit: &placement.Fit{Context: 8192, Trained: 131072, Free: 8e9, On: "a GPU, 20 of 48 layers and CPU, 28 of 48 layers"}},
		{Name: "huge", Size: 40_000_000_000, ContextTrain: 4096, Fit: &placement.Fit{Trained: 4096, Free: 8e9}},
		{Name: "broken", Size: 1_000_000, ContextTrain: 4096, TemplateProblem: "the model's chat template cannot be used (line 3)"},
		{Name: "small", Size: 1_000_000, ContextTrain: 4096, Fit: &placement.Fit{Context: 4096, Trained: 4096, Free: 8e9, On: "CPU"}, License: "MIT"},
	}
	t.Run("the table has one line for each model and steers no terminal", func(t *testing.T) {
		var out strings.Builder
		if err := List(&out, models, false); err != nil {
			t.Fatal(err)
		}
		want := `NAME       SIZE     FAMILY                         PARAMETERS  QUANT  CONTEXT  FITS  RUNS ON  LICENSE
guide      15.2 MB  llama                          14.2 M      Q8_0   1024           MIT
evil name  12 B     cannot be used: not a GGUF file: starts with "
new        9.0 GB   not supported: muse-spark
big        4.9 GB   qwen3moe, 8 of 128 experts     8.0 B       Q4_K   131072   8192 a GPU, 20 of 48 layers and CPU, 28 of 48 layers
huge 40.0 GB  0 4096 no
broken 1.0 MB 0 4096
small 1.0 MB  0 4096 yes CPU MIT

broken: the model's chat template cannot be used (line 3)
`
		if got := out.String(); squeeze(got) != squeeze(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("JSON gives back the models", func(t *testing.T) {
		var out strings.Builder
		if err := List(&out, models[:1], true); err != nil {
			t.Fatal(err)
		}
		var got []infer.ModelInfo
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || len(got) != 1 || got[0] != models[0] {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 99949: "99.9 kB", 99950: "100 kB", 999_499: "999 kB", 999_500: "1.0 MB", 5e15: "5000 TB"} {
		t.Run("a size is rounded for people: "+want, func(t *testing.T) {
			if got := units.ByteSize(n); got != want {
				t.Errorf("%d is shown as %q", n, got)
			}
		})
	}
}

// squeeze makes runs of spaces one.
func squeeze(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

func TestTokenize(t *testing.T) {
	encode := func(text string) ([]int32, error) {
		var ids []int32
		if !utf8.ValidString(text) {
			return nil, errors.New("not UTF-8")
		}
		for _, r := range text {
			if r == '!' {
				return nil, errors.New("no exclamation marks")
			}
			ids = append(ids, r)
		}
		return ids, nil
	}
	for _, c := range []struct {
		name, in string
		jsonl    bool
		out      string
		err      string
	}{
		{"the whole text becomes one array, line breaks included", "ab\nc", false, "[97,98,10,99]\n", ""},
		{"no text is no tokens", "", false, "[]\n", ""},
		{"each byte that is not UTF-8 is the replacement character", "a\xff b\xe2\x82", false, "[97,65533,32,98,65533,65533]\n", ""},
		{"bytes that are not UTF-8 are the same in JSON", "\"a\xff b\xe2\x82\"", true, "[97,65533,32,98,65533,65533]\n", ""},
		{"each line of JSON becomes one array", "\"a\\nb\"\r\n\n\"c\"", true, "[97,10,98]\n[99]\n", ""},
		{"an empty string is an empty array", "\"\"\n", true, "[]\n", ""},
		{"a line that is no string is an error with its number", "\"a\"\n[1]\n", true, "[97]\n", "line 2 is not a JSON string"},
		{"a failure of the tokenizer is an error", "a!", false, "", "no exclamation marks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := Tokenize(strings.NewReader(c.in), &out, c.jsonl, encode)
			check(t, out.String(), c.out, err, c.err)
		})
	}
}

func TestTemplate(t *testing.T) {
	render := func(request []byte) (string, error) {
		if string(request) == "bad" {
			return "", errors.New("bad request")
		}
		return "<" + string(request) + ">\n", nil
	}
	for _, c := range []struct {
		name, in string
		jsonl    bool
		out      string
		err      string
	}{
		{"the prompt is printed as it is", "{}\n", false, "<{}\n>\n", ""},
		{"a failure is an error", "bad", false, "", "bad request"},
		{"each line gives an object, failures too", "a\nbad\n\nb", true, "{\"output\":\"<a>\\n\"}\n{\"error\":\"bad request\"}\n{\"output\":\"<b>\\n\"}\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := Template(strings.NewReader(c.in), &out, c.jsonl, render)
			check(t, out.String(), c.out, err, c.err)
		})
	}
}

func check(t *testing.T, out, wantOut string, err error, wantErr string) {
	t.Helper()
	if out != wantOut {
		t.Errorf("wrote %q, want %q", out, wantOut)
	}
	if wantErr == "" && err != nil || wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)) {
		t.Errorf("error is %v, want %q", err, wantErr)
	}
}

func TestEmbedLines(t *testing.T) {
	var asked []string
	embed := func(texts []string) (vectors []infer.Vector, err error) {
		asked = append(asked, texts...)
		for range texts {
			vectors = append(vectors, infer.Vector{float32(len(asked))})
		}
		return vectors, nil
	}
	var out strings.Builder
	err := EmbedLines(strings.NewReader("a\n\nb\xff\r\n\n"), &out, 3, embed)
	if want := []string{"a", "", "b\ufffd", ""}; err != nil || !reflect.DeepEqual(asked, want) || strings.Count(out.String(), "\n") != len(want) {
		t.Errorf("the texts were %q, want %q with a line each: %q, %v", asked, want, out.String(), err)
	}
}
