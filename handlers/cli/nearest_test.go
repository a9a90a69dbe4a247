package cli

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/sample"
)

func TestNearest(t *testing.T) {
	names := []string{"guide", "qwen2.5-0.5b-instruct-q8_0", "mistral-7b", "mistral-7b-instruct"}
	for word, want := range map[string][]string{
		"guyde":      {"guide"},
		"gyidr":      {"guide"}, // two of five letters
		"Guide":      {"guide"},
		"qwen2.5":    {"qwen2.5-0.5b-instruct-q8_0"},
		"mistrall7b": {"mistral-7b"},
		"mistral":    {"mistral-7b", "mistral-7b-instruct"},
		"hello":      nil,
		"":           nil,
	} {
		if got := Nearest(word, names); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is near %q, want %q", word, got, want)
		}
	}
}

func TestAnUnknownCommandOfTheChatNamesTheNearest(t *testing.T) {
	term, _, errs := terminal("/clera it all\n/xyzzy\n")
	if err := (&Chat{Engine: says("A"), Terminal: term}).Loop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"there is no command /clera (did you mean /clear?)", "there is no command /xyzzy; /help"} {
		if !strings.Contains(errs(), want) {
			t.Errorf("it says %q, want %q in it", errs(), want)
		}
	}
}

func TestSamplingFlagsOutOfRangeAreRefusedByTheirNames(t *testing.T) {
	for _, n := range sample.Numbers() {
		p := sample.DefaultParams()
		f := NewFlags("run", "", "")
		set := f.Sampling(&p)
		n.Set(&p, n.Max)
		flag := strings.ReplaceAll(n.Name, "_", "-")
		if flag == "temperature" {
			flag = "temp"
		}
		term, _, _ := terminal("")
		if _, err := f.Parse(term, []string{"--" + flag, "2000000000"}, 0); err != nil {
			t.Fatal(err)
		}
		unset, err := set()
		if slices.Contains(unset, n.Name) || len(unset) != len(sample.SuggestionNames())-1 {
			t.Errorf("with --%s, %q are left to the model", flag, unset)
		}
		if n.Max >= 2_000_000_000 {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "--"+flag+" 2") || !strings.Contains(err.Error(), "must be from") {
			t.Errorf("--%s 2000000000: %v", flag, err)
		}
	}
}

func TestJSONSteersNoTerminalAndLosesNothing(t *testing.T) {
	models := []infer.ModelInfo{{Name: "a\u009b31m\u202eb\u2066\x7f\u0085ü"}}
	var out strings.Builder
	if err := List(&out, models, true); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\u009b\u202e\u2066\x7f\u0085") || !strings.Contains(out.String(), "ü") {
		t.Errorf("it prints %q", out.String())
	}
	var back []infer.ModelInfo
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || !reflect.DeepEqual(back, models) {
		t.Errorf("it gives back %+v, %v", back, err)
	}
	if got := Line("a\u202eb\u2066c\u200fd\u061ce"); got != "abcde" {
		t.Errorf("a line is %q", got)
	}
}

func TestColumnsOfAListStayBelowEachOther(t *testing.T) {
	var out strings.Builder
	long := strings.Repeat("x", 60)
	err := List(&out, []infer.ModelInfo{
		{Name: "guide", Size: 10, Quant: "Q8_0", ContextTrain: 1024},
		{Name: "模型", Size: 20, Quant: "Q8_0", ContextTrain: 1024},
		{Name: long, Size: 30, Quant: "Q8_0", ContextTrain: 1024},
		{Name: "bad", Size: 12, Error: strings.Repeat("a long reason ", 9)},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 6 || lines[3] != long {
		t.Fatalf("the list is\n%s", out.String())
	}
	at := cellWidth(lines[0][:strings.Index(lines[0], "SIZE")])
	for i, size := range map[int]string{1: "10 B", 2: "20 B", 4: "30 B", 5: "12 B"} {
		if got := cellWidth(lines[i][:strings.Index(lines[i], size)]); got != at {
			t.Errorf("the size of line %d is in cell %d, want %d:\n%s", i, got, at, out.String())
		}
	}
}
