package cli

import (
	"encoding/json"
	"io"

	"m40-llm/infer"
)

// EmbedLines embeds each line of in, empty ones too, and prints the vectors as EmbedTexts does. It
// passes up to batch lines to embed at a time.
func EmbedLines(in io.Reader, out io.Writer, batch int, embed func(texts []string) ([]infer.Vector, error)) error {
	var texts []string
	flush := func() error {
		if len(texts) == 0 {
			return nil
		}
		err := EmbedTexts(out, texts, embed)
		texts = texts[:0]
		return err
	}
	err := everyLine(in, func(_ int, line []byte) error {
		if texts = append(texts, string(line)); len(texts) < batch {
			return nil
		}
		return flush()
	})
	if err != nil {
		return err
	}
	return flush()
}

// EmbedTexts prints the vectors of texts, each as a JSON array on a line. Bytes that are not UTF-8 count as in
// Tokenize.
func EmbedTexts(out io.Writer, texts []string, embed func(texts []string) ([]infer.Vector, error)) error {
	valid := make([]string, len(texts))
	for i, text := range texts {
		valid[i] = validText(text)
	}
	vectors, err := embed(valid)
	if err != nil {
		return err
	}
	for _, v := range vectors {
		if err := json.NewEncoder(out).Encode([]float32(v)); err != nil {
			return err
		}
	}
	return nil
}
