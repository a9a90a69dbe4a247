package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"m40-llm/infer"
	"m40-llm/infer/units"
)

// Show prints the properties, tensor types and metadata of a model, as tables or as a JSON
// object.
func Show(w io.Writer, d infer.ModelDetails, asJSON bool) error {
	if asJSON {
		return writeJSON(w, d)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(key, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", Line(key), Line(value))
		}
	}
	path := d.Path
	if path == "" {
		path = "built in"
	}
	row("name", d.Name)
	row("file", path)
	row("size", units.ByteSize(d.Size))
	row("cannot be used", d.Error)
	row("architecture", d.Architecture)
	row("experts", d.ExpertsInWords())
	row("parameters", units.Quantity(d.Parameters))
	row("quantisation", d.Quant)
	if d.ContextTrain > 0 {
		row("context", fmt.Sprintf("%d tokens", d.ContextTrain))
	}
	if d.Fit != nil {
		row("memory", d.Fit.String())
		row("runs on", d.Fit.On)
	}
	pictures := d.Companion
	if d.Companion != "" && d.Fit != nil && d.Fit.Pictures != "" {
		pictures += ", encoded on " + d.Fit.Pictures
	}
	row("pictures", pictures)
	row("license", d.License)
	template := "none"
	if d.Template != nil {
		template = fmt.Sprintf("%d bytes, SHA-256 %s", d.Template.Bytes, d.Template.SHA256)
		if d.Template.File != "" {
			template += ", from " + Line(d.Template.File)
		}
	}
	row("chat template", template)
	row("", d.TemplateProblem)
	if err := table.Flush(); err != nil {
		return err
	}

	fmt.Fprint(w, "\n")
	fmt.Fprintln(table, "TYPE\tTENSORS\tWEIGHTS\tSIZE")
	for _, t := range d.Types {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", t.Type, t.Tensors, units.Quantity(t.Elements), units.ByteSize(t.Bytes))
	}
	if err := table.Flush(); err != nil {
		return err
	}

	fmt.Fprint(w, "\n")
	fmt.Fprintln(table, "KEY\tVALUE")
	for _, m := range d.Metadata {
		fmt.Fprintf(table, "%s\t%s\n", Line(m.Key), Line(m.Value))
	}
	return table.Flush()
}
