package model

import (
	"fmt"

	"m40-llm/infer/gguf"
)

// The text parts of Qwen 2 VL, 2.5 VL and 3 VL. Rows of pictures have three coordinates, a time, a row and a column, and so have those of
// text after them; see Config.Sections.
var (
	qwen2VL    = architecture{neox: true, tensors: qwen2.tensors, read: func(m *metadata, c *Config) { m.sections(c, false) }}
	qwen3VL    = architecture{neox: true, tensors: qwen3.tensors, read: readQwen3VL}
	qwen3VLMoE = architecture{neox: true, tensors: qwen3moe.tensors, read: func(m *metadata, c *Config) {
		qwen3moe.read(m, c)
		readQwen3VL(m, c)
	}}
)

func readQwen3VL(m *metadata, c *Config) {
	m.sections(c, true)
	c.Deepstack = m.optionalInteger("n_deepstack_layers", 0, len(c.Layers), 0)
}

// sections reads which pairs of RoPE turn by which coordinate.
func (m *metadata) sections(c *Config, interleaved bool) {
	sections, err := gguf.Optional(m.f.Ints, m.key("rope.dimension_sections"), nil)
	if err == nil && sections != nil && (len(sections) < 3 || min(sections[0], sections[1], sections[2]) < 0) {
		err = fmt.Errorf("%s is %v, want how many pairs turn by the time, the row and the column", m.key("rope.dimension_sections"), sections)
	}
	if err != nil {
		m.fail(err)
		return
	}
	if sections != nil {
		c.Sections, c.Interleaved = [3]int{int(sections[0]), int(sections[1]), int(sections[2])}, interleaved
	}
}

// HasCoordinates reports whether rows have coordinates besides their positions in steps with pictures.
func (c *Config) HasCoordinates() bool { return c.Sections != [3]int{} }

// axis returns the coordinate, from 0, by which a pair of RoPE turns.
func (c *Config) axis(pair int) int {
	time, row, column := c.Sections[0], c.Sections[1], c.Sections[2]
	switch {
	case c.Interleaved && pair%3 == 1 && pair < 3*row, !c.Interleaved && pair >= time && pair < time+row:
		return 1
	case c.Interleaved && pair%3 == 2 && pair < 3*column, !c.Interleaved && pair >= time+row && pair < time+row+column:
		return 2
	}
	return 0
}
