package document

import (
	"archive/zip"
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of a DOCX file, which is a ZIP archive of XML.
const (
	maxEntries = 10_000
	maxXML     = 64 << 20 // bytes of one part
)

func readDOCX(file []byte) (string, error) {
	archive, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return "", failed("is broken, or only a part of it: %v", err)
	}
	if len(archive.File) > maxEntries {
		return "", failed("is a ZIP archive of %d files, and a document has at most %d", len(archive.File), maxEntries)
	}
	parts := map[string]*zip.File{}
	for _, f := range archive.File {
		parts[strings.TrimPrefix(f.Name, "/")] = f
	}
	body := parts["word/document.xml"]
	if body == nil {
		return "", failed("is a ZIP archive, and not a DOCX file: of ZIP archives, only documents of Word can be read")
	}
	var out strings.Builder
	if err := readPart(&out, body); err != nil {
		return "", err
	}
	for _, name := range []string{"word/footnotes.xml", "word/endnotes.xml"} {
		if part := parts[name]; part != nil {
			if err := readPart(&out, part); err != nil {
				return "", err
			}
		}
	}
	return out.String(), nil
}

// readPart appends the text of a part of a document to out.
func readPart(out *strings.Builder, part *zip.File) error {
	r, err := part.Open()
	if err != nil {
		return failed("is broken: %v", err)
	}
	defer r.Close()
	limited := &io.LimitedReader{R: r, N: maxXML}
	w := wordReader{out: out, decoder: xml.NewDecoder(limited)}
	err = w.read()
	switch {
	case limited.N <= 0:
		return failed("unpacks to more than %d MB, which is more than a document has", maxXML>>20)
	case err != nil && errors.As(err, new(*Error)):
		return err
	case err != nil:
		return failed("is broken: %v", err)
	}
	return nil
}

// wordReader writes the text of WordprocessingML: a paragraph a line, cells of a table between bars.
type wordReader struct {
	out       *strings.Builder
	decoder   *xml.Decoder
	paragraph strings.Builder
	prefix    string // of the paragraph: of a heading or a list
	cells     []int  // cells so far in the rows of tables around
}

func (w *wordReader) read() error {
	for {
		token, err := w.decoder.RawToken()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			err = w.start(t)
		case xml.EndElement:
			w.end(t.Name.Local)
		}
		if err != nil {
			return err
		}
		if w.out.Len()+w.paragraph.Len() > maxText {
			return failed("has more than %d MB of text: attach the part that matters", maxText>>20)
		}
	}
}

func (w *wordReader) start(t xml.StartElement) error {
	switch t.Name.Local {
	case "t": // text
		return w.text()
	case "tab":
		w.paragraph.WriteByte('\t')
	case "br", "cr":
		w.paragraph.WriteByte('\n')
	case "noBreakHyphen":
		w.paragraph.WriteByte('-')
	case "pStyle":
		if level, found := strings.CutPrefix(strings.ToLower(value(t)), "heading"); found {
			if n, err := strconv.Atoi(level); err == nil && n >= 1 && n <= 6 {
				w.prefix = strings.Repeat("#", n) + " "
			}
		}
	case "numPr":
		if w.prefix == "" {
			w.prefix = "- "
		}
	case "footnoteReference", "endnoteReference":
		fmt.Fprintf(&w.paragraph, "[note %s]", attribute(t, "id"))
	case "footnote", "endnote":
		if attribute(t, "type") == "" { // the others are lines between text and notes
			w.prefix = "[note " + attribute(t, "id") + "] "
		}
	case "tr":
		w.cells = append(w.cells, 0)
	case "tc":
		if n := len(w.cells); n > 0 {
			if w.cells[n-1]++; w.cells[n-1] > 1 {
				w.out.WriteString(" | ")
			}
		}
	case "Fallback", "del", "instrText": // the same again for older programs, what was deleted, what computes a text
		return w.skip()
	}
	return nil
}

func (w *wordReader) end(name string) {
	switch name {
	case "p":
		text := w.paragraph.String()
		w.paragraph.Reset()
		if len(w.cells) > 0 {
			w.out.WriteString(strings.Join(strings.Fields(text), " "))
			w.out.WriteByte(' ')
			break
		}
		w.out.WriteString(w.prefix + text + "\n")
		w.prefix = ""
	case "tr":
		if n := len(w.cells); n > 0 {
			w.cells = w.cells[:n-1]
		}
		w.out.WriteByte('\n')
	case "tbl":
		w.out.WriteByte('\n')
	}
}

// text appends the text of the element that has started.
func (w *wordReader) text() error {
	for {
		token, err := w.decoder.RawToken()
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.CharData:
			w.paragraph.Write(t)
		case xml.EndElement:
			return nil
		}
	}
}

// skip reads up to the end of the element that has started.
func (w *wordReader) skip() error {
	for depth := 1; depth > 0; {
		token, err := w.decoder.RawToken()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			depth++
		case xml.EndElement:
			depth--
		}
	}
	return nil
}

func value(t xml.StartElement) string { return attribute(t, "val") }

func attribute(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
