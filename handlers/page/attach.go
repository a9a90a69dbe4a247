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

	"m40-llm/handlers/failure"
	"m40-llm/infer/readtext"
	"m40-llm/infer/units"
)

const (
	maxAttached = 160 << 10 // bytes of all files of a message, as in attach.js
	maxFileName = 200       // bytes
)

// withFiles returns the text of a message with the text files of its form, as attach.js writes them: each
// in a fence behind its name.
func withFiles(c echo.Context, text string) (string, error) {
	form, err := c.MultipartForm()
	if errors.Is(err, http.ErrNotMultipart) {
		return text, nil
	}
	if err != nil {
		return "", failure.Invalid("files", "the form cannot be read: %v", err)
	}
	parts, total := []string{}, int64(0)
	if strings.TrimSpace(text) != "" {
		parts = append(parts, text)
	}
	for _, file := range form.File["files"] {
		if file.Filename == "" {
			continue // none was chosen
		}
		if total += file.Size; total > maxAttached {
			return "", failure.Invalid("files", "the files have more than %s, the most that a message can have; attach the part that matters", units.ByteSize(maxAttached))
		}
		part, err := readAttached(file)
		if err != nil {
			return "", err
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

func readAttached(file *multipart.FileHeader) (string, error) {
	name := oneLine.Replace(strings.ToValidUTF8(file.Filename, "\ufffd"))
	name = strings.ToValidUTF8(name[:min(len(name), maxFileName)], "")
	data, err := readFormFile(file)
	if err != nil {
		return "", err
	}
	if data, err = readtext.Clean(data); err != nil || controls.Match(data) {
		return "", failure.Invalid("files", "%s is not a text file in UTF-8: the model reads text and code only", name)
	}
	fence := "```"
	for _, run := range backticks.FindAllString(string(data), -1) {
		if len(run) >= len(fence) {
			fence = run + "`"
		}
	}
	language := ""
	if ext := path.Ext(name); extension.MatchString(ext) {
		language = ext[1:]
	}
	content := strings.TrimSuffix(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(data)), "\n")
	return "File " + name + ":\n" + fence + language + "\n" + content + "\n" + fence, nil
}
