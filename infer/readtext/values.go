package readtext

import (
	"fmt"
	"io"
)

// MaxSpace is how many bytes of white space in a row JSONValues lets pass.
const MaxSpace = 64 << 10

// ErrSpace is the error of JSONValues where white space is longer.
var ErrSpace = fmt.Errorf("more than %d KiB of white space stand between two values", MaxSpace>>10)

// JSONValues reads JSON of strangers for a json.Decoder, which would take memory for a value of any
// length, and time that is quadratic in the length of white space between values.
type JSONValues struct {
	file    io.Reader
	tooLong error
	left    int

	inText, escaped bool
	space           int // bytes of white space so far
}

// NewJSONValues returns a reader of file. tooLong is its error when more is read than was allowed.
func NewJSONValues(file io.Reader, tooLong error) *JSONValues {
	return &JSONValues{file: file, tooLong: tooLong}
}

// Allow lets bytes more be read, for the next value, whatever the values before have left.
func (v *JSONValues) Allow(bytes int) { v.left = bytes }

func (v *JSONValues) Read(p []byte) (int, error) {
	if v.left <= 0 {
		return 0, v.tooLong
	}
	n, err := v.file.Read(p[:min(len(p), v.left)])
	v.left -= n
	for _, b := range p[:n] {
		switch {
		case v.escaped:
			v.escaped = false
		case v.inText:
			v.escaped, v.inText = b == '\\', b != '"'
		case b == ' ', b == '\t', b == '\r', b == '\n':
			if v.space++; v.space > MaxSpace {
				return 0, ErrSpace
			}
			continue
		case b == '"':
			v.inText = true
		}
		v.space = 0
	}
	return n, err
}
