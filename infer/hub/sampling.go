package hub

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"m40-llm/infer/gguf"
	"m40-llm/infer/sample"
)

// samplingKeys are the keys of sampler settings in files, in their order, and the settings' names.
var samplingKeys = []struct{ key, name string }{
	{"temp", "temperature"}, {"top_k", "top_k"}, {"top_p", "top_p"}, {"min_p", "min_p"},
	{"xtc_probability", "xtc_probability"}, {"xtc_threshold", "xtc_threshold"},
	{"penalty_last_n", "repeat_last_n"}, {"penalty_repeat", "repeat_penalty"},
	{"mirostat", "mirostat"}, {"mirostat_tau", "mirostat_tau"}, {"mirostat_eta", "mirostat_eta"},
}

// suggestion reads the sampler settings of a file, general.sampling.*; nil if it has none.
func suggestion(f *gguf.File) *sample.Suggestion {
	var s sample.Suggestion
	for _, k := range samplingKeys {
		key := "general.sampling." + k.key
		switch value, err := number(f, key); {
		case errors.Is(err, gguf.ErrMissing):
		case err != nil:
			s.Ignore(key, err)
		default:
			s.Add(key, k.name, value)
		}
	}
	const order = "general.sampling.sequence"
	switch names, err := f.Str(order); {
	case errors.Is(err, gguf.ErrMissing):
	case err != nil:
		s.Ignore(order, err)
	default:
		s.Order(order, strings.FieldsFunc(names, func(r rune) bool { return r == ';' }))
	}
	if s.Empty() && len(s.Ignored) == 0 {
		return nil
	}
	return &s
}

// number returns the value of a key, a number of any type.
func number(f *gguf.File, key string) (float64, error) {
	values, _, array, err := f.First(key, 1)
	switch {
	case err != nil:
		return 0, err
	case array:
		return 0, errors.New("it is an array")
	}
	switch v := values[0].(type) {
	case float32: // the decimal number that was meant
		return decimal(v), nil
	case float64:
		return v, nil
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	}
	return 0, fmt.Errorf("it is %.40q, and not a number", fmt.Sprint(values[0]))
}

// decimal returns the shortest decimal number that rounds to v, because 0.95 in a file means 0.95 and
// not 0.949999988079071.
func decimal(v float32) float64 {
	exact, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
	if err != nil {
		return float64(v)
	}
	return exact
}
