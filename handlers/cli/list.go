package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"m40-llm/infer"
)

// List prints models as a table, or as a JSON array.
func List(w io.Writer, models []infer.ModelInfo, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(models)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		for i, c := range cells {
			cells[i] = Line(c)
		}
		fmt.Fprintln(table, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	row("NAME", "SIZE", "PARAMETERS", "QUANT", "CONTEXT", "FITS", "LICENSE")
	for _, m := range models {
		if m.Error != "" {
			row(m.Name, bytes(m.Size), "cannot be used: "+m.Error)
			continue
		}
		row(m.Name, bytes(m.Size), count(m.Parameters), m.Quant, fmt.Sprint(m.ContextTrain), fits(m.Fit), m.License)
	}
	return table.Flush()
}

// fits says in a word whether a model fits into the memory, and with which context.
func fits(f *infer.Fit) string {
	switch {
	case f == nil || f.Free == 0:
		return ""
	case f.Context == 0:
		return "no"
	case f.Context < f.Trained:
		return fmt.Sprint(f.Context)
	}
	return "yes"
}

// bytes returns n with a unit, as file managers show it: 1 kB is 1,000 bytes.
func bytes(n int64) string { return scaled(n, " B", " kB", " MB", " GB", " TB") }

func count(n int64) string { return scaled(n, "", " K", " M", " B", " T") }

func scaled(n int64, units ...string) string {
	x, i := float64(n), 0
	for x >= 999.5 && i < len(units)-1 {
		x /= 1000
		i++
	}
	if i == 0 || x >= 99.95 {
		return fmt.Sprintf("%.0f%s", x, units[i])
	}
	return fmt.Sprintf("%.1f%s", x, units[i])
}
