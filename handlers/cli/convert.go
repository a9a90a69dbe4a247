package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf8"

	"m40-llm/infer/readtext"
)

// Tokenize reads a text from in and prints its tokens as a JSON array. Each byte that is not UTF-8 counts as
// U+FFFD, as in a request. With jsonl, each line
// of in is a JSON string, and its tokens are printed as one line.
func Tokenize(in io.Reader, out io.Writer, jsonl bool, encode func(text string) ([]int32, error)) error {
	write := func(text string) error {
		ids, err := encode(text)
		if err != nil {
			return err
		}
		if ids == nil {
			ids = []int32{}
		}
		return json.NewEncoder(out).Encode(ids)
	}
	if !jsonl {
		text, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("failed to read the text: %w", err)
		}
		return write(validText(string(text)))
	}
	return eachLine(in, func(number int, line []byte) error {
		var text string
		if err := json.Unmarshal(line, &text); err != nil {
			return fmt.Errorf("line %d is not a JSON string: %w", number, err)
		}
		return write(text)
	})
}

// validText returns text with U+FFFD for each byte that is not UTF-8, as in the texts of requests in JSON.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return string([]rune(text))
}

// Template reads a request from in and prints the prompt that render returns for it, without
// adding a line break. With jsonl, each line of in is a request, for which it prints a line
// {"output": …} or {"error": …}.
func Template(in io.Reader, out io.Writer, jsonl bool, render func(request []byte) (string, error)) error {
	if !jsonl {
		request, err := io.ReadAll(in)
		if err != nil {
			return fmt.Errorf("failed to read the request: %w", err)
		}
		if request, err = readtext.Clean(request); err != nil {
			return fmt.Errorf("the request cannot be used, %w", err)
		}
		prompt, err := render(request)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, prompt)
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	return eachLine(in, func(_ int, line []byte) error {
		prompt, err := render(line)
		if err != nil {
			return encoder.Encode(struct {
				Error string `json:"error"`
			}{err.Error()})
		}
		return encoder.Encode(struct {
			Output string `json:"output"`
		}{prompt})
	})
}

// eachLine calls do with each line of in that is not empty. The first line is number 1.
func eachLine(in io.Reader, do func(number int, line []byte) error) error {
	return everyLine(in, func(number int, line []byte) error {
		if len(line) == 0 {
			return nil
		}
		return do(number, line)
	})
}

// everyLine calls do with each line of in, without its end.
func everyLine(in io.Reader, do func(number int, line []byte) error) error {
	r := bufio.NewReader(in)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return fmt.Errorf("failed to read line %d: %w", number, err)
		}
		if len(line) > 0 {
			if err := do(number, trim(line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

func trim(line []byte) []byte {
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line
}
