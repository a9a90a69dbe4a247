package live

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"m40-llm/handlers/markdown/blocks"
)

// The blocks that are finished at any moment of an answer are those that its readers were told of, also
// where only the line after a block ends it.
func TestFinishedBlocks_AreThoseThatWerePublished(t *testing.T) {
	line := rapid.SampledFrom([]string{"", "word", "# head", "- item", "1. item", "```", "    code", "> quote"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(line, 0, 20).Draw(t, "lines"), "\n")
		var s blocks.Splitter
		var published []string
		for begin := 0; ; begin = s.Open() {
			m := Message{Text: text, Answer: &Answer{Blocks: begin}}
			if got := m.FinishedBlocks(); !slices.Equal(got, published) {
				t.Fatalf("at %d of %q the finished blocks are %q, want %q", begin, text, got, published)
			}
			end := s.Next(text)
			if end == 0 {
				return
			}
			published = append(published, text[begin:end])
		}
	})
}
