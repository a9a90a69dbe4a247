package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/ref"
)

// seeingCatalog has one model with its companion.
type seeingCatalog struct {
	catalog
	companion string
}

func (c seeingCatalog) OwnTemplate(m infer.ModelInfo) (string, error) { return m.ChatTemplate, nil }

func (c seeingCatalog) Open(name string) (*gguf.File, infer.ModelInfo, error) {
	f, info, err := c.catalog.Open(name)
	info.Companion = c.companion
	return f, info, err
}

// openSeeing starts an engine with the model called name of the fixtures, and the companion file of another if that is not empty.
func openSeeing(t *testing.T, name, companion string, set func(*Options)) *bench {
	t.Helper()
	text, err := os.ReadFile(fixtures.Path(t, "images", name, "text.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, files: map[string][]byte{"m": text}}
	o := Options{
		Catalog:    seeingCatalog{catalog{b}, companion},
		OpenDevice: func(*gguf.File) (device.Device, error) { return ref.New(), nil },
		OpenTower:  func(*gguf.File) (device.Device, error) { return ref.New(), nil },
		Model:      "m",
		CacheType:  "f32",
	}
	if set != nil {
		set(&o)
	}
	b.openReady(o)
	return b
}

// seenCase is a case of golden.json.
type seenCase struct {
	Name     string   `json:"name"`
	Pictures []string `json:"pictures"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	IDs          []int32   `json:"ids"`
	Greedy       []int32   `json:"greedy"`
	GreedyMargin []float64 `json:"greedy_margin"`
}

func readPicture(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "images", "pictures", filepath.Base(file)))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// request returns the request of a case for as many tokens as it has.
func (c *seenCase) request(t *testing.T) infer.Request {
	t.Helper()
	r := infer.DefaultRequest()
	r.MaxTokens, r.IgnoreEOS, r.Params.Temperature = len(c.Greedy), true, 0
	pictures := c.Pictures
	for _, m := range c.Messages {
		message := chat.Message{Role: m.Role}
		var parts []struct{ Type, Text string }
		if json.Unmarshal(m.Content, &parts) != nil {
			if err := json.Unmarshal(m.Content, &message.Content); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range parts {
			if p.Type == "image" {
				message.Content += chat.PictureMark
				message.Pictures = append(message.Pictures, readPicture(t, pictures[0]))
				pictures = pictures[1:]
			}
			message.Content += p.Text
		}
		r.Messages = append(r.Messages, message)
	}
	return r
}

func seenCases(t *testing.T, name string) (cases []seenCase) {
	t.Helper()
	data, err := os.ReadFile(fixtures.Path(t, "images", name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Cases []seenCase `json:"cases"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	return g.Cases
}

func TestPictures_AnswersAreTheReferences(t *testing.T) {
	b := openSeeing(t, "gemma3", fixtures.Path(t, "images", "gemma3", "mmproj.gguf"), nil)
	cases := seenCases(t, "gemma3")
	alone := make([]outcome, len(cases))
	for i, c := range cases {
		r := c.request(t)
		view, err := b.Render(t.Context(), r)
		if err != nil || !slices.Equal(view.Tokens, c.IDs) {
			t.Fatalf("%s: got the prompt %v, %v, want %v", c.Name, view.Tokens, err, c.IDs)
		}
		alone[i] = b.ask(r)
		if alone[i].err != nil {
			t.Fatalf("%s: %v", c.Name, alone[i].err)
		}
		if got := alone[i].done.Usage.PromptTokens; got != len(c.IDs) {
			t.Errorf("%s: the prompt counts %d tokens, want %d", c.Name, got, len(c.IDs))
		}
		for k, id := range alone[i].ids() {
			if c.GreedyMargin[k] <= 0.6 {
				break
			}
			if id != c.Greedy[k] {
				t.Errorf("%s: token %d is %d, want %d", c.Name, k, id, c.Greedy[k])
				break
			}
		}
	}
	small := openSeeing(t, "gemma3", fixtures.Path(t, "images", "gemma3", "mmproj.gguf"), func(o *Options) { o.Parallel, o.ChunkRows = 3, 8 })
	var running sync.WaitGroup
	for i, c := range cases {
		r := c.request(t)
		running.Go(func() {
			if got := small.ask(r); got.err != nil || !slices.Equal(got.ids(), alone[i].ids()) {
				t.Errorf("%s: beside others, in small chunks, the answer is %v, %v, want %v", c.Name, got.ids(), got.err, alone[i].ids())
			}
		})
	}
	running.Wait()
}

func TestPictures_OnlyTheSamePictureSharesAPrefix(t *testing.T) {
	b := openSeeing(t, "gemma3", fixtures.Path(t, "images", "gemma3", "mmproj.gguf"), nil)
	ask := func(file string) outcome {
		r := infer.DefaultRequest()
		r.MaxTokens, r.IgnoreEOS, r.Params.Temperature = 4, true, 0
		r.Messages = []chat.Message{{Role: "user", Content: strings.Repeat("text ", 20) + chat.PictureMark + strings.Repeat("more text ", 20), Pictures: [][]byte{readPicture(t, file)}}}
		got := b.ask(r)
		if got.err != nil {
			t.Fatal(got.err)
		}
		return got
	}
	first := ask("wide.png")
	again := ask("wide.png")
	if got, want := again.done.Usage.CachedTokens, first.done.Usage.PromptTokens-1; got < want-device.BlockSize {
		t.Errorf("of the same picture %d tokens were cached, want about %d", got, want)
	}
	if !slices.Equal(again.ids(), first.ids()) {
		t.Errorf("the answer changed from %v to %v", first.ids(), again.ids())
	}
	other := ask("square.png")
	fresh := openSeeing(t, "gemma3", fixtures.Path(t, "images", "gemma3", "mmproj.gguf"), nil)
	b, before := fresh, other
	if want := ask("square.png"); !slices.Equal(before.ids(), want.ids()) {
		t.Errorf("behind another picture the answer is %v, alone %v", before.ids(), want.ids())
	}
	if got := before.done.Usage.CachedTokens; got > 64 {
		t.Errorf("%d tokens were shared with another picture, which begins before that", got)
	}
}

func TestPictures_WhatCannotBeSeenIsRefused(t *testing.T) {
	companion := fixtures.Path(t, "images", "gemma3", "mmproj.gguf")
	picture := readPicture(t, "wide.png")
	for name, c := range map[string]struct {
		companion string
		message   chat.Message
		want      string
	}{
		"no companion":                {"", chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "cannot see pictures"},
		"the companion of another":    {fixtures.Path(t, "images", "smolvlm", "mmproj.gguf"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "idefics3"},
		"one of another width":        {fixtures.Path(t, "images", "gemma4", "mmproj.gguf"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "mmproj.gguf cannot be used"},
		"no picture":                  {companion, chat.Message{Content: chat.PictureMark, Pictures: [][]byte{[]byte("hello")}}, "picture 1"},
		"fewer marks than pictures":   {companion, chat.Message{Content: "x", Pictures: [][]byte{picture}}, "mark"},
		"more marks than pictures":    {companion, chat.Message{Content: chat.PictureMark + chat.PictureMark, Pictures: [][]byte{picture}}, "mark"},
		"a truncated file":            {companion, chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture[:len(picture)/2]}}, "picture 1"},
		"a picture without any bytes": {companion, chat.Message{Content: chat.PictureMark, Pictures: [][]byte{nil}}, "picture 1"},
	} {
		t.Run(name, func(t *testing.T) {
			b := openSeeing(t, "gemma3", c.companion, nil)
			r := infer.DefaultRequest()
			c.message.Role, r.MaxTokens = "user", 1
			r.Messages = []chat.Message{c.message}
			e, ok := errors.AsType[*infer.Error](b.ask(r).err)
			if !ok || e.Code != infer.CodeInvalid || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %v, want an error with %q", e, c.want)
			}
			r.Messages = []chat.Message{{Role: "user", Content: "only text " + chat.PictureMark}}
			if got := b.ask(r); got.err != nil {
				t.Errorf("text is refused: %v", got.err)
			}
		})
	}
}
