package page

import (
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"path"
	"regexp"
	"strings"

	"github.com/labstack/echo/v4"

	"m40-llm/handlers/document"
	"m40-llm/infer/fault"
	"m40-llm/infer/readtext"
	"m40-llm/infer/units"
)

const (
	maxAttached = 160 << 10 // bytes of all files of a message, as in attach.js
	maxFileName = 200       // bytes
)

// withFiles returns the text of a message with the files of its form, as attach.js writes them: each in a fence after
// its name.
func (h *Handlers) withFiles(c echo.Context, text string) (string, error) {
	form, err := c.MultipartForm()
	if errors.Is(err, http.ErrNotMultipart) {
		return text, nil
	}
	if err != nil {
		return "", fault.Invalid("files", "the form cannot be read: %v", err)
	}
	parts, total := []string{}, 0
	if strings.TrimSpace(text) != "" {
		parts = append(parts, text)
	}
	for _, file := range form.File["files"] {
		if file.Filename == "" {
			continue // none was chosen
		}
		part, err := h.readAttached(c, file)
		if err != nil {
			return "", err
		}
		if total += len(part); total > maxAttached {
			return "", fault.Invalid("files", "the files have more than %s, the most that a message can have; attach the part that matters", units.ByteSize(maxAttached))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "\n\n"), nil
}

var (
	backticks = regexp.MustCompile("`+")
	extension = regexp.MustCompile(`^\.[A-Za-z0-9+#]{1,12}$`)
	controls  = regexp.MustCompile(`[\x00-\x08\x0e-\x1a\x1c-\x1f]`)
	oneLine   = strings.NewReplacer("\r", " ", "\n", " ")
)

func readFormFile(file *multipart.FileHeader) ([]byte, error) {
	opened, err := file.Open()
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	return io.ReadAll(opened)
}

func (h *Handlers) readAttached(c echo.Context, file *multipart.FileHeader) (string, error) {
	name := oneLine.Replace(strings.ToValidUTF8(file.Filename, "\ufffd"))
	name = strings.ToValidUTF8(name[:min(len(name), maxFileName)], "")
	data, err := readFormFile(file)
	if err != nil {
		return "", err
	}
	language := ""
	if document.Is(data[:min(len(data), 1024)]) {
		d, err := h.document(c, data)
		if known := (*document.Error)(nil); errors.As(err, &known) {
			return "", fault.Invalid("files", "the file “%s” %s", name, known.Reason)
		}
		if err != nil {
			return "", err
		}
		data = []byte(d.Text)
	} else if ext := path.Ext(name); extension.MatchString(ext) {
		language = ext[1:]
	}
	if data, err = readtext.Clean(data); err != nil || controls.Match(data) {
		return "", fault.Invalid("files", "%s is not a text file in UTF-8, and no PDF or DOCX file: the model reads text and code only", name)
	}
	fence := "```"
	for _, run := range backticks.FindAllString(string(data), -1) {
		if len(run) >= len(fence) {
			fence = run + "`"
		}
	}
	content := strings.TrimSuffix(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
	return "File " + name + ":\n" + fence + language + "\n" + content + "\n" + fence, nil
}
