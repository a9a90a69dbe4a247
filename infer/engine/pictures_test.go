package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/cpu"
	"m40-llm/infer/device"
	"m40-llm/infer/fault"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/picture"
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
	text, err := os.ReadFile(fixtures.Images(t, name, "text.gguf"))
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
		Pictures:   seenLimits(t, name),
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
	Rendered string   `json:"rendered"`
	Pictures []string `json:"pictures"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	IDs          []int32   `json:"ids"`
	Spans        [][2]int  `json:"image_spans"`
	Positions    [][]int32 `json:"position_ids"`
	Next         int32     `json:"next_position"`
	Greedy       []int32   `json:"greedy"`
	GreedyMargin []float64 `json:"greedy_margin"`
}

// sure returns the margin above which the likeliest token must be the reference's.
func (c *seenCase) sure() float64 {
	if slices.ContainsFunc(c.Pictures, func(file string) bool { return filepath.Ext(file) == ".jpg" }) {
		return 0.6 // decoders differ
	}
	return 2e-3
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
	data, err := os.ReadFile(fixtures.Images(t, name, "golden.json"))
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

// seenLimits returns the limits of pictures that the goldens of a family were made with.
func seenLimits(t *testing.T, name string) picture.Options {
	t.Helper()
	data, err := os.ReadFile(fixtures.Images(t, name, "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Preprocessor struct {
			MaxSoftTokens int `json:"max_soft_tokens"`
			MergeSize     int `json:"merge_size"`
			PatchSize     any `json:"patch_size"`
			MinTokens     int `json:"min_image_tokens"`
			MaxTokens     int `json:"max_image_tokens"`
			Size          struct {
				Longest  int `json:"longest_edge"`
				Shortest int `json:"shortest_edge"`
			} `json:"size"`
		} `json:"preprocessor"`
	}
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	p := g.Preprocessor
	if p.MergeSize == 0 {
		return picture.Options{MinTokens: p.MinTokens, MaxTokens: p.MaxSoftTokens + p.MaxTokens}
	}
	side := p.MergeSize * int(p.PatchSize.(float64))
	return picture.Options{MinTokens: p.Size.Shortest / (side * side), MaxTokens: p.Size.Longest / (side * side)}
}

// seenFamilies are the fixtures of models that read pictures.
var seenFamilies = []string{"gemma3", "llava", "smolvlm", "mistral3", "qwen25vl", "qwen3vl", "qwen35vl", "gemma4", "gemma4e", "internvl", "lfm2", "qwen2vl"}

func mmproj(t *testing.T, name string) string {
	t.Helper()
	return fixtures.Images(t, name, "mmproj.gguf")
}

func TestPictures_AnswersAreTheReferences(t *testing.T) {
	for _, name := range seenFamilies {
		t.Run(name, func(t *testing.T) { testSeenAnswers(t, name) })
	}
}

func testSeenAnswers(t *testing.T, name string) {
	b := openSeeing(t, name, mmproj(t, name), nil)
	cases := seenCases(t, name)
	alone := make([]outcome, len(cases))
	for i, c := range cases {
		r := c.request(t)
		view, err := b.Render(t.Context(), r)
		if err != nil || !slices.Equal(view.Tokens, c.IDs) {
			t.Fatalf("%s: got the prompt %v, %v, want %v", c.Name, view.Tokens, err, c.IDs)
		}
		b.testSpans(c, r)
		alone[i] = b.ask(r)
		if alone[i].err != nil {
			t.Fatalf("%s: %v", c.Name, alone[i].err)
		}
		if got := alone[i].done.Usage.PromptTokens; got != len(c.IDs) {
			t.Errorf("%s: the prompt counts %d tokens, want %d", c.Name, got, len(c.IDs))
		}
		for k, id := range alone[i].ids() {
			if c.GreedyMargin[k] <= c.sure() {
				break
			}
			if id != c.Greedy[k] {
				t.Errorf("%s: token %d is %d, want %d", c.Name, k, id, c.Greedy[k])
				break
			}
		}
	}
	small := openSeeing(t, name, mmproj(t, name), func(o *Options) { o.Parallel, o.ChunkRows = 3, 8 })
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

// testSpans tests where the pictures of a case are in its prompt, and the coordinates of all rows and of the one after them.
func (b *bench) testSpans(c seenCase, r infer.Request) {
	b.t.Helper()
	err := b.use(b.t.Context(), "m", func(m *openModel) error {
		spans, err := m.look(b.t.Context(), r, c.IDs, b.models.pictures, func(infer.Pictures) bool { return true })
		if err != nil {
			return err
		}
		var got [][2]int
		for _, span := range spans {
			got = append(got, [2]int{span.at, span.rows})
		}
		if !slices.Equal(got, c.Spans) {
			b.t.Errorf("%s: pictures are at %v, want %v", c.Name, got, c.Spans)
		}
		q := &sequence{tokens: c.IDs, pictures: spans}
		if m.config.HasCoordinates() != (c.Positions != nil) {
			b.t.Errorf("%s: rows have coordinates: %v, want %v", c.Name, m.config.HasCoordinates(), c.Positions != nil)
		}
		if c.Positions == nil {
			return nil
		}
		for pos := range c.IDs {
			for axis, at := range q.coordinates(pos) {
				if at != c.Positions[axis][pos] {
					b.t.Fatalf("%s: coordinate %d of row %d is %d, want %d", c.Name, axis, pos, at, c.Positions[axis][pos])
				}
			}
		}
		if next := q.coordinates(len(c.IDs)); next != [3]int32{c.Next, c.Next, c.Next} {
			b.t.Errorf("%s: the next row has the coordinates %v, want %d", c.Name, next, c.Next)
		}
		return nil
	})
	if err != nil {
		b.t.Fatalf("%s: %v", c.Name, err)
	}
}

// rawRequest returns the request of a case as a prompt that no template wrote.
func (c *seenCase) rawRequest(t *testing.T, m *openModel) infer.Request {
	t.Helper()
	r := c.request(t)
	for _, m := range r.Messages {
		r.Pictures = append(r.Pictures, m.Pictures...)
	}
	r.Messages = nil
	see := m.vision.sees
	r.Prompt = strings.ReplaceAll(c.Rendered, see.Before+see.Placeholder+see.After, chat.PictureMark)
	if bos, _ := m.tokenizer.BOS(); m.tokenizer.AddsBOS() { // the tokenizer puts it before a prompt
		r.Prompt = strings.TrimPrefix(r.Prompt, m.tokenizer.Decode([]int32{bos}, true))
	}
	return r
}

func TestPictures_APromptThatNoTemplateWroteIsReadAsTheReferenceReadsIt(t *testing.T) {
	for _, name := range seenFamilies {
		t.Run(name, func(t *testing.T) {
			b := openSeeing(t, name, mmproj(t, name), nil)
			c := seenCases(t, name)[slices.IndexFunc(seenCases(t, name), func(c seenCase) bool { return len(c.Pictures) > 1 })]
			var r infer.Request
			err := b.use(t.Context(), "m", func(m *openModel) error {
				r = c.rawRequest(t, m)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			view, err := b.Render(t.Context(), r)
			if err != nil || !slices.Equal(view.Tokens, c.IDs) || len(view.Pictures) != len(c.Pictures) {
				t.Fatalf("got the prompt %v with pictures of %v tokens, %v, want %v", view.Tokens, view.Pictures, err, c.IDs)
			}
			b.testSpans(c, r)
			raw, said := b.ask(r), b.ask(c.request(t))
			if raw.err != nil || !slices.Equal(raw.ids(), said.ids()) {
				t.Errorf("the answer is %v, %v, that to the conversation is %v, %v", raw.ids(), raw.err, said.ids(), said.err)
			}
			if got := raw.done.Usage.PromptTokens; got != len(c.IDs) {
				t.Errorf("the prompt counts %d tokens, want %d", got, len(c.IDs))
			}
		})
	}
}

// The details of large.png in the sizes of the fixtures, which are smaller than those of published models.
var detailsOfLarge = map[string]infer.PictureTokens{
	"gemma3":   {Low: 16, Medium: 16, Full: 16},
	"qwen25vl": {Low: 63, Medium: 63, Full: 63},
	"smolvlm":  {Low: 4, Medium: 20, Full: 40},
	"gemma4":   {Low: 12, Medium: 30, Full: 63},
	"lfm2":     {Low: 2, Medium: 18, Full: 38},
	"internvl": {Low: 4, Medium: 4, Full: 20},
}

func TestPictures_TheirDetailDecidesHowManyTokensTheyAre(t *testing.T) {
	for name, want := range detailsOfLarge {
		t.Run(name, func(t *testing.T) {
			b := openSeeing(t, name, mmproj(t, name), nil)
			for detail, tokens := range map[chat.Detail]int{chat.Full: want.Full, chat.Medium: want.Medium, chat.Low: want.Low} {
				m := chat.Message{Role: "user", Content: chat.PictureMark + "what?" + chat.PictureMark}
				m.AddPicture(readPicture(t, "large.png"), detail)
				m.AddPicture(readPicture(t, "large.png"), chat.Full)
				r := infer.DefaultRequest()
				r.Messages, r.MaxTokens, r.Params.Temperature = []chat.Message{m}, 3, 0
				view, err := b.Render(t.Context(), r)
				if err != nil || !slices.Equal(view.Pictures, []int{tokens, want.Full}) || !slices.Equal(view.Details, []infer.PictureTokens{want, want}) {
					t.Fatalf("%q: got pictures of %v tokens, %+v, %v, want %d and %d, %+v", detail, view.Pictures, view.Details, err, tokens, want.Full, want)
				}
				got, again := b.ask(r), b.ask(r)
				if got.err != nil || got.done.Usage.PromptTokens != len(view.Tokens) || !slices.Equal(got.ids(), again.ids()) {
					t.Errorf("%q: the prompt of %d tokens counts %d, %v; the answer is %v, and again %v", detail, len(view.Tokens), got.done.Usage.PromptTokens, got.err, got.ids(), again.ids())
				}
			}
		})
	}
}

func TestPictures_DetailsThatFitNoPicturesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		details []chat.Detail
		want    string
	}{
		"an unknown one":         {[]chat.Detail{"huge"}, `the detail "huge"`},
		"more than pictures are": {[]chat.Detail{chat.Low, chat.Low}, "1 pictures and 2 details"},
	} {
		t.Run(name, func(t *testing.T) {
			r := infer.DefaultRequest()
			r.Messages = []chat.Message{{Role: "user", Content: chat.PictureMark, Pictures: [][]byte{{1}}, Details: c.details}}
			if err := r.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestPictures_APromptThatCannotBeSeenIsRefused(t *testing.T) {
	picture := readPicture(t, "wide.png")
	for name, c := range map[string]struct {
		companion, prompt string
		pictures          [][]byte
		param, want       string
	}{
		"no companion":              {"", chat.PictureMark, [][]byte{picture}, "prompt", "cannot see pictures"},
		"no picture":                {mmproj(t, "gemma3"), chat.PictureMark, [][]byte{[]byte("hello")}, "prompt", "picture 1"},
		"a damaged second picture":  {mmproj(t, "gemma3"), chat.PictureMark + chat.PictureMark, [][]byte{picture, picture[:len(picture)/2]}, "prompt", "picture 2"},
		"fewer marks than pictures": {mmproj(t, "gemma3"), "x", [][]byte{picture}, "prompt", "1 pictures and 0 marks"},
		"the text of a picture":     {mmproj(t, "gemma3"), chat.PictureMark + "<image_soft_token>", [][]byte{picture}, "prompt", "control token <image_soft_token>"},
		"pictures without a prompt": {mmproj(t, "gemma3"), "", [][]byte{picture}, "pictures", "prompt, which is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			b := openSeeing(t, "gemma3", c.companion, nil)
			r := infer.DefaultRequest()
			r.Prompt, r.Pictures, r.MaxTokens = c.prompt, c.pictures, 1
			if c.prompt == "" {
				r.Messages = []chat.Message{{Role: "user", Content: "x"}}
			}
			e, ok := errors.AsType[*fault.Error](b.ask(r).err)
			if !ok || e.Code != fault.CodeInvalid || e.Param != c.param || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %+v, want an error of %s with %q", e, c.param, c.want)
			}
		})
	}
}

// A chat goes on after a picture, is rewound, and another one with the same picture begins as it does: all find what is in the cache,
// and answer as a fresh engine does.
func TestPictures_ChatsGoOnAndForkBehindAPicture(t *testing.T) {
	for _, name := range seenFamilies {
		t.Run(name, func(t *testing.T) {
			warm := openSeeing(t, name, mmproj(t, name), nil)
			ask := func(b *bench, more ...chat.Message) outcome {
				r := infer.DefaultRequest()
				r.MaxTokens, r.IgnoreEOS, r.Params.Temperature = 6, true, 0
				r.Messages = append([]chat.Message{{Role: "user", Content: "text " + chat.PictureMark + strings.Repeat("more text ", 12), Pictures: [][]byte{readPicture(t, "wide.png")}}}, more...)
				got := b.ask(r)
				if got.err != nil {
					t.Fatal(got.err)
				}
				return got
			}
			first := ask(warm)
			answer := chat.Message{Role: "assistant", Content: first.text}
			for i, more := range [][]chat.Message{
				{answer, {Role: "user", Content: "and then?"}},
				nil,
				{answer, {Role: "user", Content: "why?"}},
				{answer, {Role: "user", Content: "and " + chat.PictureMark + " here?", Pictures: [][]byte{readPicture(t, "square.png")}}},
				{answer, {Role: "user", Content: "and " + chat.PictureMark + " there?", Pictures: [][]byte{readPicture(t, "square.png")}}},
			} {
				got := ask(warm, more...)
				want := ask(openSeeing(t, name, mmproj(t, name), nil), more...)
				if !slices.Equal(got.ids(), want.ids()) {
					t.Errorf("turn %d: the warm chat answers %v, a cold one %v", i, got.ids(), want.ids())
				}
				if got.done.Usage.CachedTokens == 0 {
					t.Errorf("turn %d: nothing of the prompt of %d tokens was cached", i, got.done.Usage.PromptTokens)
				}
			}
		})
	}
}

func TestPictures_ALargerPictureThanThoseBeforeIsEncoded(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 560, 560))
	for i := range img.Pix {
		img.Pix[i] = byte(i * i / 97)
	}
	var large bytes.Buffer
	if err := png.Encode(&large, img); err != nil {
		t.Fatal(err)
	}
	ask := func(b *bench, data []byte) outcome {
		r := infer.DefaultRequest()
		r.MaxTokens, r.IgnoreEOS, r.Params.Temperature = 4, true, 0
		r.Messages = []chat.Message{{Role: "user", Content: chat.PictureMark + "text", Pictures: [][]byte{data}}}
		return b.ask(r)
	}
	onCPU := func(o *Options) {
		o.OpenTower = func(*gguf.File) (device.Device, error) { return cpu.Open(2) }
	}
	b, fresh := openSeeing(t, "qwen25vl", mmproj(t, "qwen25vl"), onCPU), openSeeing(t, "qwen25vl", mmproj(t, "qwen25vl"), onCPU)
	small := ask(b, readPicture(t, "wide.png"))
	got, want := ask(b, large.Bytes()), ask(fresh, large.Bytes())
	if small.err != nil || got.err != nil || want.err != nil || !slices.Equal(got.ids(), want.ids()) {
		t.Fatalf("behind a small picture the answer about a large one is %v, %v, alone %v, %v", got.ids(), got.err, want.ids(), want.err)
	}
	if n := got.done.Usage.PromptTokens; n < 400 {
		t.Errorf("the prompt has %d tokens", n)
	}
}

func TestPictures_ThoseOfAPromptThatDoesNotFitAreNotEncoded(t *testing.T) {
	encodes := func(*gguf.File) (device.Device, error) { return nil, errors.New("a tower was opened") }
	b := openSeeing(t, "gemma3", mmproj(t, "gemma3"), func(o *Options) { o.ContextLength, o.OpenTower = 64, encodes })
	r := infer.DefaultRequest()
	r.Messages = []chat.Message{{Role: "user", Content: chat.PictureMark + strings.Repeat("text ", 99), Pictures: [][]byte{readPicture(t, "wide.png")}}}
	if e, ok := errors.AsType[*fault.Error](b.ask(r).err); !ok || e.Code != fault.CodeContext {
		t.Errorf("got %v, want the error of a prompt that does not fit", e)
	}
}

func TestPictures_OnlyTheSamePictureSharesAPrefix(t *testing.T) {
	for _, name := range seenFamilies {
		t.Run(name, func(t *testing.T) { testSharedPrefixes(t, name) })
	}
}

func testSharedPrefixes(t *testing.T, name string) {
	b := openSeeing(t, name, mmproj(t, name), nil)
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
	fresh := openSeeing(t, name, mmproj(t, name), nil)
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
	changed := func(name, old, new string) string {
		file := filepath.Join(t.TempDir(), "mmproj.gguf")
		data, err := os.ReadFile(mmproj(t, name))
		if err == nil {
			err = os.WriteFile(file, bytes.Replace(data, []byte(old), []byte(new), 1), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, c := range map[string]struct {
		companion string
		message   chat.Message
		want      string
	}{
		"no companion":                {"", chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "cannot see pictures"},
		"the companion of another":    {mmproj(t, "smolvlm"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "no token <image>"},
		"one with vectors for layers": {mmproj(t, "qwen3vl"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "for 2 layers of the model, which has 0"},
		"an unknown projector":        {changed("smolvlm", "idefics3", "idefics9"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, `projector "idefics9" is not supported`},
		"one of another width":        {fixtures.Path(t, "images", "gemma4", "mmproj.gguf"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "mmproj.gguf cannot be used"},
		"one without a tensor":        {changed("gemma3", "v.post_ln.weight", "v.post_ln.weighs"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "v.post_ln.weight"},
		"one with another tensor":     {changed("gemma3", "v.post_ln.bias", "v.post_ln.bios"), chat.Message{Content: chat.PictureMark, Pictures: [][]byte{picture}}, "v.post_ln.bios"},
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
			e, ok := errors.AsType[*fault.Error](b.ask(r).err)
			if !ok || e.Code != fault.CodeInvalid || !strings.Contains(e.Message, c.want) {
				t.Errorf("got %v, want an error with %q", e, c.want)
			}
			r.Messages = []chat.Message{{Role: "user", Content: "only text " + chat.PictureMark}}
			if got := b.ask(r); got.err != nil {
				t.Errorf("text is refused: %v", got.err)
			}
		})
	}
}
