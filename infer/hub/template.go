package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"m40-llm/infer"
	"m40-llm/infer/chatformat"
	"m40-llm/infer/fault"
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
	file = templateFile(e.path)
	source, err = ReadTemplate(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && source == "" {
		return "", "", nil
	}
	return source, file, err
}

// templateFile returns the path of the file with a chat template for the model whose file is at path.
func templateFile(path string) string {
	return filepath.Join(filepath.Dir(path), gguf.ModelName(filepath.Base(path))+templateSuffix)
}

// OwnTemplate implements infer.Catalog.
func (h *Hub) OwnTemplate(m infer.ModelInfo) (source string, err error) {
	source, _, err = h.ownTemplate(entry{path: m.Path})
	return source, err
}

// WriteTemplate gives the model called name a chat template of its own, in a file next to it; an empty source removes that,
// so that the template in the model's file is used again. A template that cannot be parsed is refused.
func (h *Hub) WriteTemplate(name, source string) error {
	if h.template != "" {
		return unusable("all models have the template of --chat-template; start the server without it to give %q its own", name)
	}
	e, err := h.inFolder(name)
	if err != nil {
		return err
	}
	if len(source) > maxTemplate {
		return fault.Invalid("template", "the template has %d bytes; at most %d are possible", len(source), maxTemplate)
	}
	if source == "" {
		return h.changeTemplate(e, func(root *os.Root, file string) error { return removeIfExists(root, file) })
	}
	if problem := chatformat.TemplateProblem(source); problem != "" {
		return &fault.Error{Code: fault.CodeInvalid, Param: "template", Message: problem}
	}
	return h.changeTemplate(e, func(root *os.Root, file string) error {
		return errors.Join(writeCopy(context.Background(), root, strings.NewReader(source), file), root.Chmod(file, 0o644))
	})
}

// changeTemplate calls change with the models folder and the file in it that has the template of e.
func (h *Hub) changeTemplate(e entry, change func(root *os.Root, file string) error) error {
	file, err := filepath.Rel(h.dir, templateFile(e.path))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return fmt.Errorf("failed to open the models folder: %w", err)
	}
	defer root.Close()
	if err := change(root, file); err != nil {
		return fmt.Errorf("failed to change the chat template of %s: %w", e.name, err)
	}
	return nil
}
