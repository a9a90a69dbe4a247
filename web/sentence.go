package web

import (
	"context"
	"fmt"
	"io"
	"regexp"

	"github.com/a-h/templ"

	"m40-llm/web/lang"
)

var sentencePart = regexp.MustCompile(`%s|\[[^\]]*\]`)

// sentence renders a text of the catalogue that is not plain: the parts take the places of its %s and of its [words in
// brackets], in this order. A part is a string or a component, whose children are the words.
func sentence(text string, parts ...any) templ.Component {
	return templ.ComponentFunc(func(ctx context.Context, w io.Writer) error {
		text := lang.T(ctx, text)
		found := sentencePart.FindAllStringIndex(text, -1)
		if len(found) != len(parts) {
			return fmt.Errorf("%q has %d places for %d parts", text, len(found), len(parts))
		}
		from := 0
		for i, at := range found {
			if err := write(w, text[from:at[0]]); err != nil {
				return err
			}
			from = at[1]
			var err error
			switch part := parts[i].(type) {
			case string:
				err = write(w, part)
			case templ.Component:
				words := text[at[0]+1 : at[1]-1]
				children := templ.ComponentFunc(func(_ context.Context, w io.Writer) error { return write(w, words) })
				err = part.Render(templ.WithChildren(ctx, children), w)
			default:
				err = fmt.Errorf("%q has a %T as its part %d", text, part, i)
			}
			if err != nil {
				return err
			}
		}
		return write(w, text[from:])
	})
}

// write writes text as HTML.
func write(w io.Writer, text string) error {
	_, err := io.WriteString(w, templ.EscapeString(text))
	return err
}
