package cli

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"m40-llm/infer/sample"
)

// Sampling declares a flag for each sampling parameter that is a number, with its value in p
// as the default. Once the flags are parsed, set copies their values into p, and returns an
// error that names the flag if a value is out of range.
func (f *Flags) Sampling(p *sample.Params) (set func() error) {
	var setters []func()
	flags := map[string]string{}
	for _, n := range sample.Numbers() {
		name := strings.ReplaceAll(n.Name, "_", "-")
		if n.Name == "temperature" {
			name = "temp"
		}
		flags[n.Name] = name
		about := strings.ToLower(n.About[:1]) + n.About[1:]
		if !math.IsNaN(n.Off) && !strings.Contains(about, "0 for none") {
			about += fmt.Sprintf("; %v: off", n.Off)
		}
		if n.Whole {
			v := f.Int(name, int(n.Get(p)), about)
			setters = append(setters, func() { n.Set(p, float64(*v)) })
		} else {
			v := f.Float(name, n.Get(p), about)
			setters = append(setters, func() { n.Set(p, *v) })
		}
	}
	return func() error {
		for _, set := range setters {
			set()
		}
		err := p.Validate()
		if e, ok := errors.AsType[*sample.FieldError](err); ok && flags[e.Field] != "" {
			return Usagef("--%s %v %s; see m40-llm %s -h", flags[e.Field], e.Value, e.Problem, f.command)
		}
		return err
	}
}
