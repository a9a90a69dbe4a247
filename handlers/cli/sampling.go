package cli

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"strings"

	"m40-llm/infer/sample"
)

// Sampling declares a flag for each sampling parameter that is a number, with its value in p
// as the default. Once the flags are parsed, set copies their values into p, and returns an
// error that names the flag if a value is out of range. unset are the parameters without a flag, which
// are left to the model.
func (f *Flags) Sampling(p *sample.Params) (set func() (unset []string, err error)) {
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
	return func() (unset []string, err error) {
		for _, set := range setters {
			set()
		}
		given := map[string]bool{}
		f.set.Visit(func(set *flag.Flag) { given[set.Name] = true })
		for _, name := range sample.SuggestionNames() {
			if !given[flags[name]] {
				unset = append(unset, name)
			}
		}
		err = p.Validate()
		if e, ok := errors.AsType[*sample.FieldError](err); ok && flags[e.Field] != "" {
			err = Usagef("--%s %v %s; see m40-llm %s -h", flags[e.Field], e.Value, e.Problem, f.command)
		}
		return unset, err
	}
}
