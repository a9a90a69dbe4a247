package commands

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer/gguf/gguftest"
)

func TestEmbedPrintsAVectorForEachTextOrLine(t *testing.T) {
	model := filepath.Join(t.TempDir(), "tiny-embed.gguf")
	if err := os.WriteFile(model, gguftest.TinyBERT(gguftest.BERT{Context: 32}), 0o600); err != nil {
		t.Fatal(err)
	}
	args := execute(t, nil, "", "embed", "--model", model, "--device", "cpu", "one text", "another", "")
	lines := execute(t, nil, "one text\nanother\r\n\n", "embed", "--model", model, "--device", "cpu")
	if args.code != 0 || lines != args {
		t.Fatalf("arguments gave %+v, lines %+v", args, lines)
	}
	var vectors [][]float64
	for line := range strings.Lines(args.out) {
		var v []float64
		if err := json.Unmarshal([]byte(line), &v); err != nil || len(v) != 64 {
			t.Fatalf("%d numbers, %v: %s", len(v), err, line)
		}
		vectors = append(vectors, v)
	}
	length := 0.0
	for _, x := range vectors[0] {
		length += x * x
	}
	if len(vectors) != 3 || math.Abs(length-1) > 1e-5 {
		t.Errorf("%d vectors, the first of length %g", len(vectors), math.Sqrt(length))
	}

	status, answer := serving(t, "--model", model)("/v1/embeddings", `{"input":["another","one text"]}`)
	var list struct {
		Data []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal([]byte(answer), &list); err != nil || status != http.StatusOK || len(list.Data) != 2 {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	if !slices.Equal(list.Data[0].Embedding, vectors[1]) || !slices.Equal(list.Data[1].Embedding, vectors[0]) {
		t.Error("the server computes other vectors than the command")
	}

	long := strings.Repeat("long ", 30)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"embed", "text"}, "choose a model"},
		{[]string{"embed", "--model", "guide", "text"}, "does not compute embeddings"},
		{[]string{"embed", "--model", model, long}, "maximum context length is 32 tokens"},
		{[]string{"embed", "--model", model, "--dimensions", "65", "text"}, "more than the 64"},
	} {
		if got := execute(t, nil, "", c.args...); got.code == 0 || got.out != "" || !strings.Contains(got.errs, c.want) {
			t.Errorf("%.60s: got %+v", fmt.Sprint(c.args), got)
		}
	}
	if got := execute(t, nil, "", "embed", "--model", model, "--truncate", "--dimensions", "3", long); got.code != 0 || strings.Count(got.out, ",") != 2 {
		t.Errorf("a truncated text: got %+v", got)
	}
}
