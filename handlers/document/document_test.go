package document

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"m40-llm/infer/fixtures"
)

// self reads files in processes of this test's program, whose TestMain calls Serve.
func self() *Reader { return NewReader("/proc/self/exe") }

// pdfFile writes a PDF from its objects, the first of which has number 1 and is the catalogue.
func pdfFile(trailer string, objects ...string) []byte {
	var out bytes.Buffer
	out.WriteString("%PDF-1.7\n")
	var offsets []int
	for i, object := range objects {
		offsets = append(offsets, out.Len())
		fmt.Fprintf(&out, "%d 0 obj\n%s\nendobj\n", i+1, object)
	}
	at := out.Len()
	fmt.Fprintf(&out, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, offset := range offsets {
		fmt.Fprintf(&out, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&out, "trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, trailer, at)
	return out.Bytes()
}

func stream(entries, content string) string {
	return fmt.Sprintf("<< /Length %d %s >>\nstream\n%s\nendstream", len(content), entries, content)
}

// pages returns a PDF with a page for each content.
func pages(contents ...string) []byte {
	kids := ""
	objects := []string{"<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"}
	for i, content := range contents {
		kids += fmt.Sprintf("%d 0 R ", 4+2*i)
		objects = append(objects,
			fmt.Sprintf("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> /XObject << /X %d 0 R >> >> /Contents %d 0 R >>", 5+2*i, 5+2*i),
			stream("/Subtype /Form /Resources << /XObject << >> >>", content))
	}
	objects[1] = fmt.Sprintf("<< /Type /Pages /Count %d /Kids [%s] >>", len(contents), kids)
	return pdfFile("", objects...)
}

// zipFile writes an archive of names and contents in turn.
const wordBegin = `<?xml version="1.0" encoding="UTF-8" standalone="yes"?><w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><w:body>`
const wordEnd = `<w:sectPr/></w:body></w:document>`

func word(t testing.TB, body string, more ...string) []byte {
	t.Helper()
	return fixtures.Zip(t, append([]string{"[Content_Types].xml", "<Types/>", "word/document.xml", wordBegin + body + wordEnd}, more...)...)
}

func TestRead_ReturnsTheTextOfAFile(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		file []byte
		want Document
	}{
		{"a page", pages("BT /F1 12 Tf 72 700 Td (Moss grows in shade.) Tj 0 -14 Td (It has no roots.) Tj 0 -40 Td (A paragraph.) Tj ET"),
			Document{PDF, "Moss grows in shade.\nIt has no roots.\n\nA paragraph.", 1}},
		{"pages say which they are", pages("BT /F1 12 Tf 72 700 Td (One) Tj ET", "BT /F1 12 Tf 72 700 Td (Two) Tj ET"),
			Document{PDF, "[Page 1]\nOne\n\n[Page 2]\nTwo", 2}},
		{"words that are placed one by one", pages("BT /F1 10 Tf 1 0 0 1 72 700 Tm [(W)80(ords)] TJ 1 0 0 1 120 700 Tm (apart) Tj 14 TL (below) ' ET"),
			Document{PDF, "Words apart\nbelow", 1}},
		{"bytes before the file", append([]byte("\n\n"), pages("BT /F1 12 Tf 72 700 Td (Moss) Tj ET")...), Document{}},
		{"paragraphs, a heading, a list and a table", word(t, `<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Moss</w:t></w:r></w:p>`+
			`<w:p><w:r><w:t xml:space="preserve">It grows </w:t></w:r><w:r><w:t>in shade &amp; damp.</w:t><w:br/><w:t>Next line</w:t><w:tab/><w:t>tab</w:t></w:r></w:p>`+
			`<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/></w:numPr></w:pPr><w:r><w:t>an item</w:t></w:r></w:p>`+
			`<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>`+
			`<w:tbl><w:tr><w:tc><w:p><w:r><w:t>Name</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>Height</w:t></w:r></w:p></w:tc></w:tr><w:tr><w:tc><w:p><w:r><w:t>Sphagnum</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>30 cm</w:t></w:r></w:p></w:tc></w:tr></w:tbl>`+
			`<w:p><mc:AlternateContent><mc:Choice><w:r><w:t>once</w:t></w:r></mc:Choice><mc:Fallback><w:r><w:t>twice</w:t></w:r></mc:Fallback></mc:AlternateContent><w:r><w:footnoteReference w:id="2"/></w:r></w:p>`,
			"word/footnotes.xml", `<w:footnotes xmlns:w="x"><w:footnote w:type="separator" w:id="0"><w:p/></w:footnote><w:footnote w:id="2"><w:p><w:r><w:t>A note.</w:t></w:r></w:p></w:footnote></w:footnotes>`),
			Document{DOCX, "# Moss\nIt grows in shade & damp.\nNext line\ttab\n- an item\nnew\nName  | Height\nSphagnum  | 30 cm\n\nonce[note 2]\n\n[note 2] A note.", 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := self().Read(t.Context(), tc.file)
			if tc.want.Kind == "" {
				return // whatever it is, the process ended
			}
			if err != nil || got != tc.want {
				t.Errorf("got %v and\n%#v, want\n%#v", err, got, tc.want)
			}
		})
	}
}

func TestRead_SaysWhyAFileCannotBeRead(t *testing.T) {
	t.Parallel()
	locked := pdfFile("/Encrypt << /Filter /Standard /V 1 /R 2 /O <"+strings.Repeat("41", 32)+"> /U <"+strings.Repeat("42", 32)+"> /P -4 >> /ID [<41> <41>]", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 0 /Kids [] >>")
	for _, tc := range []struct {
		name, want string
		file       []byte
	}{
		{"no document", "is neither a PDF nor a DOCX file", []byte("hello")},
		{"a PDF with a password", "is protected by a password", locked},
		{"a PDF that is encrypted with a new method", "is encrypted in a way", bytes.ReplaceAll(locked, []byte("/V 1 /R 2"), []byte("/V 5 /R 6"))},
		{"a PDF of pictures", "its pages are pictures", pages("q 612 0 0 792 0 0 cm /Im1 Do Q", "")},
		{"a part of a PDF", "is broken, or only a part of it", pages("BT /F1 12 Tf (Moss) Tj ET")[:300]},
		{"a part of a DOCX", "is broken, or only a part of it", word(t, "<w:p/>")[:60]},
		{"another archive", "and not a DOCX file", fixtures.Zip(t, "xl/workbook.xml", "<x/>")},
		{"an archive of very many files", "a document has at most 10000", fixtures.Zip(t, func() (list []string) {
			for i := range maxEntries + 1 {
				list = append(list, fmt.Sprint(i), "")
			}
			return list
		}()...)},
		{"an old Office file", "of before 2007", append(bytes.Clone(oleMagic), make([]byte, 600)...)},
		{"a DOCX without text", "has no text", word(t, "<w:p/>")},
		{"a DOCX that is no XML", "is broken", word(t, "<w:p><w:r><w:t>a</w:t")},
		{"a DOCX that unpacks to more than it may", "unpacks to more than 64 MB", word(t, "<w:p>"+strings.Repeat("<!--"+strings.Repeat("moss ", 1<<16)+"-->", maxXML>>18)+"</w:p>")},
		{"a DOCX with more text than it may", "has more than 4 MB of text", word(t, "<w:p>"+strings.Repeat("<w:r><w:t>moss and more moss</w:t></w:r>", maxText/18+1)+"</w:p>")},
		{"a PDF with more text than it may", "has more than 4 MB of text", pages("BT /F1 12 Tf 72 700 Td " + strings.Repeat("(moss moss moss moss moss moss) Tj 0 -14 Td ", maxText/29+1) + " ET")},
		{"a file that is too large", "has more than 32 MB", append([]byte("%PDF-1.7"), make([]byte, MaxBytes)...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := self().Read(t.Context(), tc.file)
			var known *Error
			if !errors.As(err, &known) || !strings.Contains(known.Reason, tc.want) {
				t.Errorf("got %v, want that it %q", err, tc.want)
			}
		})
	}
}

func TestRead_OutlivesFilesThatHang(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1<<20)
	for name, file := range map[string][]byte{
		"a form that shows itself":       pages("BT /F1 12 Tf 72 700 Td (Moss) Tj ET " + strings.Repeat("/X Do ", 40)),
		"pages that contain themselves":  pdfFile("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 4000 /Kids [2 0 R 2 0 R 2 0 R] >>"),
		"a length that is itself":        pdfFile("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>", "<< /Type /Page /Contents 4 0 R >>", "<< /Length 4 0 R >>\nstream\nBT\nendstream"),
		"a value that is itself":         pdfFile("", "<< /Type /Catalog /Pages 2 0 R >>", "2 0 R"),
		"lists in lists":                 pdfFile("", "<< /Type /Catalog /Pages 2 0 R >>", deep),
		"a table that precedes itself":   bytes.ReplaceAll(pages("BT ET"), []byte("/Root 1 0 R"), []byte("/Root 1 0 R /Prev 9")),
		"widths of very many codes":      pdfFile("", "<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Count 1 /Kids [3 0 R] >>", "<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F1 << /Subtype /Type0 /DescendantFonts [ << /W [ 0 2000000000 500 -2000000000 2000000000 1 ] >> ] >> >> >> >>", stream("", "BT /F1 12 Tf <0041> Tj ET")),
		"a DOCX whose elements are deep": word(t, strings.Repeat("<w:tr><w:tc>", 1<<18)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := self()
			read.time = 5 * time.Second
			_, err := read.Read(t.Context(), file)
			if known := (*Error)(nil); err != nil && !errors.As(err, &known) {
				t.Errorf("the error is not about the file: %v", err)
			}
		})
	}
	if _, err := self().Read(t.Context(), pages("BT /F1 12 Tf 72 700 Td (Moss) Tj ET")); err != nil {
		t.Errorf("a good file is not read afterwards: %v", err)
	}
}

func TestRead_EndsWithItsRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := self().Read(ctx, pages("BT ET")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
}

// Mutated files: bytes that are changed, moved, doubled and left out.
func TestParse_TakesEveryMutationOfAFile(t *testing.T) {
	t.Parallel()
	files := [][]byte{
		pages("BT /F1 12 Tf 72 700 Td (Moss grows in shade.) Tj 0 -14 Td [(It)-250(has)] TJ ET", "q 1 0 0 1 0 0 cm /X Do Q BT /F1 9 Tf (x) ' ET"),
		word(t, strings.Repeat(`<w:p><w:r><w:t>Moss</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p/></w:tc></w:tr></w:tbl>`, 20)),
	}
	random := rand.New(rand.NewPCG(1, 2))
	ctx := t.Context()
	read := self()
	read.slots = make(chan struct{}, 4)
	for i := range 120 {
		file := bytes.Clone(files[i%len(files)])
		for range 1 + random.IntN(6) {
			at := random.IntN(len(file))
			to := min(len(file), at+1+random.IntN(24))
			switch random.IntN(4) {
			case 0:
				file[at] = byte(random.IntN(256))
			case 1:
				file = append(file[:at:at], file[to:]...)
			case 2:
				file = append(file[:to:to], append(bytes.Clone(file[at:to]), file[to:]...)...)
			case 3:
				copy(file[at:to], strconvDigits(random, to-at))
			}
		}
		if !Is(file[:min(len(file), 1024)]) {
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d, err := read.Read(ctx, file)
			if known := (*Error)(nil); err != nil && !errors.As(err, &known) {
				t.Errorf("the error is not about the file: %v", err)
			}
			if err == nil && d.Text == "" {
				t.Error("it has neither a text nor an error")
			}
		})
	}
}

func strconvDigits(random *rand.Rand, n int) string {
	digits := make([]byte, n)
	for i := range digits {
		digits[i] = byte('0' + random.IntN(10))
	}
	return string(digits)
}

func FuzzParse(f *testing.F) {
	f.Add(pages("BT /F1 12 Tf 72 700 Td (Moss) Tj ET"))
	f.Add(word(f, "<w:p><w:r><w:t>Moss</w:t></w:r></w:p>"))
	f.Fuzz(func(t *testing.T, file []byte) {
		if d, err := parse(file); err == nil && strings.TrimSpace(d.Text) == "" {
			t.Error("it has neither a text nor an error")
		}
	})
}
