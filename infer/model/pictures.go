package model

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"m40-llm/infer/device"
	"m40-llm/infer/gguf"
	"m40-llm/infer/picture"
)

// This file computes steps with pictures: rows that have vectors of a Tower in place of the embeddings of tokens
// (device.Batch.Inputs). Such a step has programs of its own, for the embeddings and for what follows them.

// Pictures are the Options for steps with pictures.
type Pictures struct {
	Rows   int  // the most rows of a picture that one step must compute, at least 1; 0: the model reads no pictures
	Attend bool // the rows of a picture see each other: device.Batch.Ends says how far

	WindowsOnly bool // only in layers with a window

	// Placeholder is what chat templates write for a picture, and Token the text of the token in each of its rows.
	Placeholder, Token string

	Before, After string // what chat templates write around Placeholder although it belongs to the picture

	family *towerFamily
}

// Runs returns how many tokens of a picture of size s follow each other. Other tokens are between the runs.
func (p Pictures) Runs(s picture.Size) []int {
	if p.family == nil || p.family.runs == nil {
		return []int{s.Tokens}
	}
	return p.family.runs(s)
}

// Text returns what the model reads for a picture of size s, in place of Placeholder.
func (p Pictures) Text(s picture.Size) string {
	tokens := strings.Repeat(p.Token, p.Runs(s)[0])
	if p.family == nil || p.family.shown == nil {
		return tokens
	}
	return p.family.shown(s, tokens)
}

// RawText returns what the model reads for a picture of size s in a prompt that no chat template wrote.
func (p Pictures) RawText(s picture.Size) string { return p.Before + p.Text(s) + p.After }

// repeated returns n runs of so many tokens.
func repeated(n, tokens int) []int { return slices.Repeat([]int{tokens}, n) }

// pictureSteps are the programs of a stage for steps with pictures.
type pictureSteps struct {
	embed  device.Executable           // of the first stage: the embeddings of the tokens
	layers map[bool]device.Executable  // what follows them; true: of steps of prompts, if these have programs of their own
	axes   [3]device.Tensor            // the divisors of RoPE's frequencies for each coordinate
	later  map[steps]device.Executable // of text whose rows have coordinates
	zeroes []float32
}

// ReadsPictures reports whether steps of the model can have pictures.
func (c *Config) ReadsPictures() bool {
	return !c.Embeds() && c.Streams == 0
}

func hasPictures(b *device.Batch) bool { return len(b.Inputs) > 0 }

// deepstack returns the activation that is added after a layer in steps with pictures.
func (s *stage) deepstack(layer, rows, cols int) device.Tensor {
	return s.buffer(fmt.Sprintf("deepstack %d", layer), rows, cols)
}

// compilePictures compiles the programs of a stage for steps with pictures, if there are such steps. All have the
// largest size, but those of the steps of text after a picture.
func (m *Model) compilePictures(s *stage) (err error) {
	if m.options.Pictures.Rows == 0 {
		return nil
	}
	axes := m.config.HasCoordinates()
	if axes {
		if err := m.uploadAxes(s); err != nil {
			return err
		}
	}
	if s.embeds {
		r := recording{device.NewProgram(m.options.MaxRows, m.options.MaxOut), m, s, true, axes}
		r.embed()
		r.Results = []device.Tensor{s.buffers.X}
		if s.pictures.embed, err = s.dev.Compile(r.Program); err != nil {
			return fmt.Errorf("failed to prepare the embeddings of steps with pictures: %w", err)
		}
	}
	s.pictures.layers = map[bool]device.Executable{}
	if axes {
		s.pictures.later = map[steps]device.Executable{}
	}
	for _, steps := range m.compiled(s) {
		if steps.rows == m.options.MaxRows {
			if s.pictures.layers[steps.prompt], err = s.dev.Compile(m.programFor(s, steps, true, axes)); err != nil {
				return fmt.Errorf("failed to prepare steps with pictures: %w", err)
			}
		}
		if axes {
			if s.pictures.later[steps], err = s.dev.Compile(m.programFor(s, steps, false, true)); err != nil {
				return fmt.Errorf("failed to prepare steps after pictures, of %d rows: %w", steps.rows, err)
			}
		}
	}
	return s.buffers.err
}

// uploadAxes uploads which pairs of RoPE turn by which coordinate. The others do not turn at all.
func (m *Model) uploadAxes(s *stage) (err error) {
	if !s.weights[ropeFreqs].None() {
		return errors.New("RoPE factors (rope_freqs.weight) are not supported in models whose rows have coordinates")
	}
	pairs := 0
	for _, l := range m.config.Layers {
		pairs = max(pairs, l.RoPE.Dims/2)
	}
	for axis := range s.pictures.axes {
		divisors := make([]float32, pairs)
		for i := range divisors {
			if divisors[i] = 1; m.config.axis(i) != axis {
				divisors[i] = float32(math.Inf(1))
			}
		}
		if s.pictures.axes[axis], err = s.dev.Upload(gguf.F32, 1, pairs, bytesOf(divisors)); err != nil {
			return err
		}
	}
	return nil
}

// programOf returns the smallest program of a stage for a step without pictures.
func (s *stage) programOf(b *device.Batch, most int) (device.Executable, error) {
	if len(b.Coordinates) == 0 {
		return s.executable(b, most), nil
	}
	if s.pictures.later == nil {
		return nil, errors.New("the model was loaded for rows without coordinates")
	}
	return s.smallest(s.pictures.later, b, most), nil
}

// runStage computes the part of a step that a stage has.
func (m *Model) runStage(s *stage, b *device.Batch) error {
	if !s.streams {
		return m.runPrograms(s, b)
	}
	dev := s.dev.(device.Streamer)
	if err := dev.AwaitPart(s.part); err != nil {
		return err
	}
	if err := m.runPrograms(s, b); err != nil {
		return err
	}
	return dev.ReleasePart(s.part)
}

// runPrograms computes the part of a step that a stage has, whose weights can be used.
func (m *Model) runPrograms(s *stage, b *device.Batch) error {
	switch {
	case !hasPictures(b):
		x, err := s.programOf(b, m.options.MaxRows)
		if err != nil {
			return err
		}
		return x.Run(b)
	case s.pictures.layers == nil:
		return errors.New("the model was loaded for steps without pictures")
	}
	if s.embeds {
		if err := s.pictures.embed.Run(b); err != nil {
			return err
		}
	}
	if err := m.writePictures(s, b); err != nil {
		return err
	}
	if m.config.PerLayerDim > 0 { // rows of pictures have the per-layer embeddings of token 0
		own := *b
		own.Tokens = slices.Clone(b.Tokens)
		for _, in := range b.Inputs {
			clear(own.Tokens[in.Row:][:len(in.Values)/m.config.Dim])
		}
		b = &own
	}
	return s.pictures.layers[b.Prompt && s.ownPrompts].Run(b)
}

// writePictures sets the vectors of pictures in the inputs of a stage.
func (m *Model) writePictures(s *stage, b *device.Batch) error {
	dim := m.config.Dim
	width := (1 + m.config.Deepstack) * dim
	for part := range 1 + m.config.Deepstack {
		to, layer := s.buffers.X, part-1
		switch {
		case part == 0 && !s.embeds, part > 0 && (layer < s.first || layer >= s.last || s.apart && layer == s.last-1):
			continue
		case part > 0:
			to = s.deepstack(layer, m.options.MaxRows, dim)
			if n := len(b.Tokens) * dim; len(s.pictures.zeroes) < n {
				s.pictures.zeroes = make([]float32, n)
			}
			if err := s.dev.Write(to, 0, s.pictures.zeroes[:len(b.Tokens)*dim]); err != nil {
				return err
			}
		}
		for _, in := range b.Inputs {
			values := in.Values
			if width > dim {
				values = nil
				for row := range len(in.Values) / width {
					values = append(values, in.Values[row*width+part*dim:][:dim]...)
				}
			}
			if err := s.dev.Write(to, in.Row, values); err != nil {
				return fmt.Errorf("picture at row %d of a step: %w", in.Row, err)
			}
		}
	}
	return nil
}
