package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"m40-llm/infer/gguf"
	"m40-llm/infer/readtext"
)

// templateSuffix ends the name of a file with a chat template for the model of that name in the same folder.
const templateSuffix = ".jinja"

// maxTemplate bounds such a file in bytes.
const maxTemplate = 256 << 10

// ReadTemplate reads a chat template from a regular file. Errors name the file.
func ReadTemplate(path string) (string, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !stat.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	return readtext.File(path, maxTemplate)
}

// isTemplate reports whether a key of a file is that of a chat template.
func isTemplate(key string) bool {
	return key == "tokenizer.chat_template" || strings.HasPrefix(key, "tokenizer.chat_template.")
}

// SetTemplate makes models in files use a chat template instead of their own. It must be called before
// other methods.
func (h *Hub) SetTemplate(source string) { h.template = source }

// ownTemplate returns the chat template that e uses instead of that in its file, and the file that it is
// from; "" if there is none.
func (h *Hub) ownTemplate(e entry) (source, file string, err error) {
	if e.path == "" {
		return "", "", nil
	}
	if h.template != "" {
		return h.template, "", nil
	}
	file = filepath.Join(filepath.Dir(e.path), gguf.ModelName(filepath.Base(e.path))+templateSuffix)
	source, err = ReadTemplate(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && source == "" {
		return "", "", nil
	}
	return source, file, err
}
