package lang

import (
	"context"
	"fmt"
	"io"
	"strings"

	"m40-llm/infer/units"
)

// Count formats n with separators between groups of three digits: 8,192, in German 8.192.
func Count(ctx context.Context, n int) string { return Figure(ctx, units.Count(n)) }

// Size formats a number of bytes as units.ByteSize does: 1.1 GB, in German 1,1 GB.
func Size(ctx context.Context, bytes int64) string { return Figure(ctx, units.ByteSize(bytes)) }

// Figure returns a number as package units formats it, with the separators of the language.
func Figure(ctx context.Context, number string) string {
	if Of(ctx) != German {
		return number
	}
	return germanSeparators.Replace(number)
}

var germanSeparators = strings.NewReplacer(".", ",", ",", ".")

// germanFloat is a float64 that a German text formats with a decimal comma.
type germanFloat float64

func (f germanFloat) Format(s fmt.State, verb rune) {
	io.WriteString(s, germanSeparators.Replace(fmt.Sprintf(fmt.FormatString(s, verb), float64(f))))
}
