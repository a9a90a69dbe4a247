package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"m40-llm/infer"
	"m40-llm/infer/placement"
	"m40-llm/infer/units"
)

// List prints models as a table with the problems of their chat templates below it, or as a JSON array.
func List(w io.Writer, models []infer.ModelInfo, asJSON bool) error {
	if asJSON {
		return writeJSON(w, models)
	}
	var rows [][]string
	var problems []string
	row := func(cells ...string) {
		for i, c := range cells {
			cells[i] = Line(c)
		}
		rows = append(rows, cells)
	}
	row("NAME", "SIZE", "FAMILY", "PARAMETERS", "QUANT", "CONTEXT", "FITS", "RUNS ON", "LICENSE")
	for _, m := range models {
		if m.Unsupported {
			row(m.Name, units.ByteSize(m.Size), "not supported: "+m.Architecture)
			continue
		}
		if m.Error != "" {
			row(m.Name, units.ByteSize(m.Size), "cannot be used: "+m.Error)
			continue
		}
		family := m.Architecture
		if m.Experts > 0 {
			family += ", " + m.ExpertsInWords()
		}
		if m.TemplateProblem != "" {
			problems = append(problems, Line(m.Name)+": "+Line(m.TemplateProblem))
		}
		row(m.Name, units.ByteSize(m.Size), family, units.Quantity(m.Parameters), m.Quant, fmt.Sprint(m.ContextTrain), fits(m.Fit), runsOn(m.Fit), m.License)
	}
	if err := writeColumns(w, rows); err != nil || len(problems) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(problems, "\n"))
	return err
}

// Names prints the names of models, one a line.
func Names(w io.Writer, models []infer.ModelInfo) error {
	for _, m := range models {
		if _, err := fmt.Fprintln(w, Line(m.Name)); err != nil {
			return err
		}
	}
	return nil
}

// writeColumns writes rows as columns that are aligned on a terminal. The last cell of a row
// may be wider than its column. After a cell wider than widest, the row continues on the next
// line.
func writeColumns(w io.Writer, rows [][]string) error {
	const widest = 48
	var widths []int
	for _, cells := range rows {
		for i, c := range cells[:max(0, len(cells)-1)] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if n := cellWidth(c); n <= widest {
				widths[i] = max(widths[i], n)
			}
		}
	}
	var out strings.Builder
	for _, cells := range rows {
		for len(cells) > 0 && cells[len(cells)-1] == "" {
			cells = cells[:len(cells)-1]
		}
		for i, c := range cells {
			out.WriteString(c)
			if i == len(cells)-1 {
				break
			}
			pad := widths[i] - cellWidth(c)
			if pad < 0 {
				out.WriteString("\n")
				pad = 0
				for _, w := range widths[:i] {
					pad += w + 2
				}
				pad += widths[i]
			}
			out.WriteString(strings.Repeat(" ", pad+2))
		}
		out.WriteString("\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// cellWidth returns how many columns s occupies on a terminal.
func cellWidth(s string) (n int) {
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case isWide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// isWide reports whether r occupies two columns: East Asian scripts, full-width forms, emoji.
func isWide(r rune) bool {
	return r >= 0x1100 && r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf && r != 0x303f || r >= 0xac00 && r <= 0xd7a3 || r >= 0xf900 && r <= 0xfaff ||
		r >= 0xfe30 && r <= 0xfe6f || r >= 0xff01 && r <= 0xff60 || r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd
}

// runsOn returns the devices that a model would be on, with their layers, or "" if unknown.
func runsOn(f *placement.Fit) string {
	if f == nil {
		return ""
	}
	return f.On
}

// fits returns the cell FITS of the table: yes, no, slowly if its weights must stay in the file, the
// largest context length that fits if that is less than the model was trained with, or "" if unknown.
func fits(f *placement.Fit) string {
	switch {
	case f == nil || f.Free == 0:
		return ""
	case f.Context == 0:
		return "no"
	case f.InFile:
		return "slowly"
	case f.Context < f.Trained:
		return fmt.Sprint(f.Context)
	}
	return "yes"
}
