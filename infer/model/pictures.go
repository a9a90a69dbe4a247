package model

import (
	"errors"
	"fmt"

	"m40-llm/infer/device"
)

// This file computes steps with pictures: rows that have vectors of a Tower in place of the embeddings of tokens
// (device.Batch.Inputs). Such a step has programs of its own, for the embeddings and for what is behind them.

// Pictures are the Options for steps with pictures.
type Pictures struct {
	Rows   int  // the most rows of a picture; 0: the model reads no pictures
	Attend bool // the rows of a picture see each other: device.Batch.Ends says how far

	// Placeholder is what chat templates write for a picture. The model reads Before, the text of Token for each row, and
	// After in its place.
	Placeholder, Token, Before, After string
}

// pictureSteps are the programs of a stage for steps with pictures.
type pictureSteps struct {
	embed  device.Executable // of the first stage: the embeddings of the tokens
	layers device.Executable // what is behind them
}

// ReadsPictures reports whether steps of the model can have pictures.
func (c *Config) ReadsPictures() bool {
	return !c.Embeds() && c.Streams == 0 && c.PerLayerDim == 0
}

func hasPictures(b *device.Batch) bool { return len(b.Inputs) > 0 }

// compilePictures compiles the programs of a stage for steps with pictures, if there are such steps. All have the
// largest size.
func (m *Model) compilePictures(s *stage) (err error) {
	if m.options.Pictures.Rows == 0 {
		return nil
	}
	if s.embeds {
		r := recording{device.NewProgram(m.options.MaxRows, m.options.MaxOut), m, s, true}
		r.embed()
		r.Results = []device.Tensor{s.buffers.X}
		if s.pictures.embed, err = s.dev.Compile(r.Program); err != nil {
			return fmt.Errorf("failed to prepare the embeddings of steps with pictures: %w", err)
		}
	}
	if s.pictures.layers, err = s.dev.Compile(m.programFor(s, m.options.MaxRows, true)); err != nil {
		return fmt.Errorf("failed to prepare steps with pictures: %w", err)
	}
	return nil
}

// runStage computes the part of a step that a stage has.
func (m *Model) runStage(s *stage, b *device.Batch) error {
	switch {
	case !hasPictures(b):
		return s.executable(len(b.Tokens), m.options.MaxRows).Run(b)
	case s.pictures.layers == nil:
		return errors.New("the model was loaded for steps without pictures")
	case s.embeds:
		if err := s.pictures.embed.Run(b); err != nil {
			return err
		}
		for _, in := range b.Inputs {
			if err := s.dev.Write(s.buffers.X, in.Row, in.Values); err != nil {
				return fmt.Errorf("picture at row %d of a step: %w", in.Row, err)
			}
		}
	}
	return s.pictures.layers.Run(b)
}
