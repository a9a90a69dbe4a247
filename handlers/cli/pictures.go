package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer/chat"
	"m40-llm/infer/picture"
)

// ReadPicture reads a picture file. The error says why it cannot be one.
func ReadPicture(file string) ([]byte, error) {
	data, _, err := readPicture(file)
	return data, err
}

func readPicture(file string) ([]byte, picture.Info, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, picture.Info{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(picture.DefaultLimits.Bytes)+1))
	if err != nil {
		return nil, picture.Info{}, err
	}
	info, err := picture.Inspect(data, picture.DefaultLimits)
	return data, info, err
}

// details are the names of chat.Detail for people, in the order in which help lists them.
var details = []string{"low", "medium", "full"}

// ParseDetail returns the detail of pictures with a name.
func ParseDetail(name string) (chat.Detail, error) {
	if !slices.Contains(details, name) {
		return "", Usagef("the detail of pictures is %q, and must be low, medium or full", name)
	}
	if name == "full" {
		return chat.Full, nil
	}
	return chat.Detail(name), nil
}

// question returns a message of the person: the first one with the pictures of the chat, and each with those whose paths are in it, unless
// it is quoted. Notes about them are printed.
func (c *Chat) question(text string, first, quoted bool) (chat.Message, error) {
	m := chat.Message{Role: "user"}
	if first {
		for _, file := range c.Pictures {
			m.AddPicture(file, c.Detail)
			m.Content += chat.PictureMark
		}
	}
	at := 0 // where the text begins that is not in the message yet
	for _, w := range words(text) {
		path, ok := c.picturePath(w)
		if !ok || quoted || c.Continue {
			continue
		}
		data, info, err := readPicture(path)
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.Terminal.Err, "m40-llm: note: there is no file %s; its name is sent as text\n", Line(path))
			continue
		}
		if err != nil {
			return m, fmt.Errorf("%s cannot be read: %w", Line(path), err)
		}
		fmt.Fprintf(c.Terminal.Err, "m40-llm: note: %s is attached, %d x %d pixels\n", Line(path), info.Width, info.Height)
		m.AddPicture(data, c.Detail)
		m.Content += chat.WithoutPictureMarks(validText(text[at:w.from])) + chat.PictureMark
		at = w.to
	}
	rest := validText(text[at:])
	if len(m.Pictures) > 0 {
		rest = chat.WithoutPictureMarks(rest)
	}
	m.Content += rest
	return m, nil
}

// pictureFiles are the endings of picture files.
var pictureFiles = []string{".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp"}

// picturePath returns the path of a picture that a word is. A name without a folder is none: it may be meant as a word.
func (c *Chat) picturePath(w word) (path string, ok bool) {
	isPath := slices.ContainsFunc([]string{"/", "./", "../", "~/"}, func(prefix string) bool { return strings.HasPrefix(w.text, prefix) })
	if !isPath || !slices.Contains(pictureFiles, strings.ToLower(filepath.Ext(w.text))) {
		return "", false
	}
	if inHome, ok := strings.CutPrefix(w.text, "~/"); ok {
		return filepath.Join(c.Terminal.Env("HOME"), inHome), true
	}
	return w.text, true
}

// word is a word of a line: what a shell would make of line[from:to].
type word struct {
	text     string
	from, to int
}

// words returns the words of a line. Quotes and backslashes are read as terminals write them for files that are dropped on them. Punctuation
// after a word does not belong to it.
func words(line string) (list []word) {
	for at := 0; at < len(line); {
		r, size := utf8.DecodeRuneInString(line[at:])
		if unicode.IsSpace(r) {
			at += size
			continue
		}
		if r == '\'' || r == '"' {
			if end := strings.IndexRune(line[at+1:], r); end >= 0 {
				list = append(list, word{line[at+1 : at+1+end], at, at + end + 2})
				at += end + 2
				continue
			}
		}
		w := word{from: at}
		var text strings.Builder
		for at < len(line) {
			r, size := utf8.DecodeRuneInString(line[at:])
			if unicode.IsSpace(r) {
				break
			}
			if r == '\\' && at+1 < len(line) {
				at++
				_, size = utf8.DecodeRuneInString(line[at:])
			}
			text.WriteString(line[at : at+size])
			at += size
		}
		w.text = strings.TrimRight(text.String(), ".,;:!?)")
		w.to = at - (text.Len() - len(w.text))
		list = append(list, w)
	}
	return list
}
