// Package readtext reads texts that people write: grammars, schemas, templates, configurations, keys and bodies of
// requests. It removes the byte order mark that some editors write, and refuses other encodings than UTF-8, which
// would reach a model as other characters than their author sees.
package readtext

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

// mark is a byte order mark.
const mark = "\uFEFF"

// Clean returns data, which must be UTF-8, without a byte order mark at its beginning. The error says at which byte,
// from 0 on, it is not UTF-8.
func Clean(data []byte) ([]byte, error) {
	if !utf8.Valid(data) {
		at := 0
		for {
			r, size := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			at += size
		}
		return nil, fmt.Errorf("it is not UTF-8 at byte %d (0x%02X)", at, data[at])
	}
	return bytes.TrimPrefix(data, []byte(mark)), nil
}

// Trim returns text without a byte order mark at its beginning.
func Trim(text string) string { return strings.TrimPrefix(text, mark) }

// All reads a text of at most so many bytes.
func All(r io.Reader, most int64) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return "", err
	}
	if int64(len(data)) > most {
		return "", fmt.Errorf("it has more than %d bytes", most)
	}
	data, err = Clean(data)
	return string(data), err
}

// File reads a text of at most so many bytes from a file. Errors name the file. A pipe is read as far as somebody writes
// to it: one without a writer is empty.
func File(path string, most int64) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := All(file, most)
	if _, named := errors.AsType[*os.PathError](err); err != nil && !named {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return text, err
}
