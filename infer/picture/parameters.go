package picture

import (
	"fmt"
	"slices"

	"m40-llm/infer/gguf"
)

// maxSide bounds sizes in the metadata, in pixels.
const maxSide = 16384

// parameters reads metadata of a companion file. The first error stays in err.
type parameters struct {
	file *gguf.File
	err  error
}

func (p *parameters) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// side returns a number of pixels, or of patches, at least 1.
func (p *parameters) side(key string) int {
	n, err := p.file.Uint(key)
	return p.checked(key, n, err)
}

// sideOr returns a number of pixels or patches, or def if the file lacks the key.
func (p *parameters) sideOr(key string, def uint64) int {
	n, err := gguf.Optional(p.file.Uint, key, def)
	return p.checked(key, n, err)
}

func (p *parameters) checked(key string, n uint64, err error) int {
	switch {
	case err != nil:
		p.fail("%w", err)
	case n < 1 || n > maxSide:
		p.fail("%s is %d, and must be from 1 to %d", key, n, maxSide)
	default:
		return int(n)
	}
	return 1
}

// channels returns a number for each of red, green and blue.
func (p *parameters) channels(key string) (values [3]float32) {
	list, err := p.file.Floats(key)
	switch {
	case err != nil:
		p.fail("%w", err)
	case len(list) != 3:
		p.fail("%s has %d values instead of one for each of red, green and blue", key, len(list))
	default:
		copy(values[:], list)
	}
	return values
}

// deviations returns what channels does, none of them 0.
func (p *parameters) deviations(key string) [3]float32 {
	values := p.channels(key)
	if p.err == nil && slices.ContainsFunc(values[:], func(v float32) bool { return !(v > 0) }) {
		p.fail("%s is %v, and its values must be above 0", key, values)
	}
	return values
}

// multiple checks that whole is a multiple of part, both positive.
func (p *parameters) multiple(what string, whole, part int) {
	if whole%part != 0 {
		p.fail("%s: %d is no multiple of %d", what, whole, part)
	}
}
