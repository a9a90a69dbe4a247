package engine

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"slices"
	"strings"
	"testing"

	"m40-llm/infer"
	"m40-llm/infer/chat"
	"m40-llm/infer/fault"
	"m40-llm/infer/picture"
)

// askAbout returns a request with a picture in its second message.
func askAbout(data []byte) infer.Request {
	r := infer.DefaultRequest()
	r.MaxTokens, r.IgnoreEOS, r.Params.Temperature = 5, true, 0
	r.Messages = []chat.Message{
		{Role: "user", Content: strings.Repeat("text ", 20)},
		{Role: "assistant", Content: "more"},
		{Role: "user", Content: chat.PictureMark + "text", Pictures: [][]byte{data}},
	}
	return r
}

// scoreBehind asks for the scores of the tokens of an answer to r.
func scoreBehind(r infer.Request, answer []int32) infer.Request {
	r.Answered, r.PromptLogProb, r.MaxTokens = answer, true, 0
	return r
}

func logProbs(tokens []infer.Token) (list []float64) {
	for _, t := range tokens {
		list = append(list, t.LogProb)
	}
	return list
}

// paint returns a PNG of a picture file, of which a rectangle has one colour.
func paint(t *testing.T, file []byte, part image.Rectangle, by [3]byte) []byte {
	t.Helper()
	from, err := picture.Decode(file, picture.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	img := image.NewNRGBA(image.Rect(0, 0, from.Width, from.Height))
	for y := range from.Height {
		for x := range from.Width {
			p := from.Pix[3*(y*from.Width+x):]
			if (image.Point{X: x, Y: y}).In(part) {
				p = by[:]
			}
			img.Set(x, y, color.NRGBA{p[0], p[1], p[2], 255})
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// meanOf returns the mean of the pixels of a picture file, computed in floating point.
func meanOf(t *testing.T, file []byte) (mean [3]byte) {
	t.Helper()
	img, err := picture.Decode(file, picture.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	for c := range mean {
		sum := 0.0
		for i := c; i < len(img.Pix); i += 3 {
			sum += float64(img.Pix[i])
		}
		mean[c] = byte(sum/float64(img.Width*img.Height) + 0.5)
	}
	return mean
}

func TestPictures_AnAnswerIsScoredBehindThemWithAndWithoutAPart(t *testing.T) {
	file := readPicture(t, "wide.png")
	whole, err := picture.Inspect(file, picture.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range seenFamilies {
		t.Run(name, func(t *testing.T) {
			b := openSeeing(t, name, mmproj(t, name), nil)
			answer := b.ask(askAbout(file))
			if answer.err != nil {
				t.Fatal(answer.err)
			}
			scored := b.ask(scoreBehind(askAbout(file), answer.ids()))
			if scored.err != nil || !slices.Equal(logProbs(scored.prompt), logProbs(answer.tokens)) {
				t.Fatalf("scored %v, %v; when it was written %v", logProbs(scored.prompt), scored.err, logProbs(answer.tokens))
			}
			rest := askAbout(file)
			rest.Answered, rest.MaxTokens = answer.ids()[:2], 3
			if got := b.ask(rest); got.err != nil || !slices.Equal(got.ids(), answer.ids()[2:]) || len(got.prompt) != 0 {
				t.Errorf("behind its first tokens the answer goes on with %v, %v, want %v", got.ids(), got.err, answer.ids()[2:])
			}
			if len(scored.tokens) != 0 || scored.done.Usage.CachedTokens == 0 {
				t.Errorf("%d tokens were written, %d cached", len(scored.tokens), scored.done.Usage.CachedTokens)
			}
			for _, part := range []image.Rectangle{image.Rect(0, 0, whole.Width/2, whole.Height/2), image.Rect(whole.Width/3, 0, whole.Width, whole.Height)} {
				without := scoreBehind(askAbout(file), answer.ids())
				without.LeftOut = &infer.PicturePart{X: part.Min.X, Y: part.Min.Y, Width: part.Dx(), Height: part.Dy()}
				got, want := b.ask(without), b.ask(scoreBehind(askAbout(paint(t, file, part, meanOf(t, file))), answer.ids()))
				if got.err != nil || want.err != nil || !slices.Equal(logProbs(got.prompt), logProbs(want.prompt)) {
					t.Errorf("without %v the answer scores %v, %v; with a picture painted over %v, %v", part, logProbs(got.prompt), got.err, logProbs(want.prompt), want.err)
				}
				if slices.Equal(logProbs(got.prompt), logProbs(scored.prompt)) {
					t.Errorf("without %v the answer scores the same", part)
				}
			}
		})
	}
}

func TestPictures_WhatCannotBeLeftOutIsRefused(t *testing.T) {
	b := openSeeing(t, "gemma3", mmproj(t, "gemma3"), nil)
	file := readPicture(t, "wide.png")
	for name, c := range map[string]struct {
		change func(*infer.Request)
		param  string
	}{
		"a part of a picture that is not there": {func(r *infer.Request) { r.LeftOut = &infer.PicturePart{Picture: 1, Width: 1, Height: 1} }, "left_out"},
		"a part without pixels":                 {func(r *infer.Request) { r.LeftOut = &infer.PicturePart{Width: 1} }, "left_out"},
		"a part that begins before the picture": {func(r *infer.Request) { r.LeftOut = &infer.PicturePart{X: -1, Width: 2, Height: 1} }, "left_out"},
		"a part that ends behind the picture":   {func(r *infer.Request) { r.LeftOut = &infer.PicturePart{Width: 1 << 62, X: 1 << 62, Height: 1} }, "messages"},
		"an answer behind tokens": {func(r *infer.Request) {
			*r = scoreBehind(infer.Request{Params: r.Params, Tokens: []int32{1, 2}}, []int32{1})
		}, "answered"},
		"an answer that is parsed":      {func(r *infer.Request) { r.Answered, r.ParseReply = []int32{1}, true }, "answered"},
		"an answer that is constrained": {func(r *infer.Request) { r.Answered, r.Grammar = []int32{1}, `root ::= "x"` }, "answered"},
		"a token of no vocabulary":      {func(r *infer.Request) { *r = scoreBehind(*r, []int32{1 << 30}) }, "tokens"},
		"a prompt with pictures":        {func(r *infer.Request) { r.PromptLogProb, r.MaxTokens = true, 0 }, "prompt_logprob"},
	} {
		t.Run(name, func(t *testing.T) {
			r := askAbout(file)
			c.change(&r)
			if e, ok := errors.AsType[*fault.Error](b.ask(r).err); !ok || e.Code != fault.CodeInvalid || e.Param != c.param {
				t.Errorf("got %#v, want %s to be refused", e, c.param)
			}
		})
	}
}
