package hub

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"m40-llm/infer/gguf"
)

// quantLabel finds a quantisation in a file name, between its separators.
var quantLabel = regexp.MustCompile(`(?i)(?:^|[-._/])(i?q[1-9](?:_[a-z0-9]+)*|tq[12]_0|bf16|fp?16|fp?32|mxfp4)`)

// quantOf returns the quantisation that the name of a model file says, in capitals, or
// "". The last one counts: before it, models have names.
func quantOf(file string) string {
	found := ""
	rest := strings.TrimSuffix(strings.ToLower(file), ".gguf")
	for _, m := range quantLabel.FindAllStringSubmatchIndex(rest, -1) {
		if end := m[3]; end == len(rest) || strings.ContainsRune("-._/", rune(rest[end])) {
			found = strings.ToUpper(rest[m[2]:end])
		}
	}
	switch found {
	case "FP16":
		return "F16"
	case "FP32":
		return "F32"
	}
	return found
}

// isQuant reports whether file has the quantisation that a person calls quant.
func isQuant(file, quant string) bool {
	base := strings.TrimSuffix(strings.ToLower(path.Base(file)), ".gguf")
	quant = strings.ToLower(quant)
	return strings.EqualFold(quantOf(file), quant) || strings.HasSuffix(base, "-"+quant) || strings.HasSuffix(base, "."+quant)
}

// mainType returns the format of most weights of a quantisation: Q4_K for Q4_K_M.
func mainType(quant string) (gguf.Type, bool) {
	for _, t := range gguf.Types() {
		if quant == t.String() || strings.HasPrefix(quant, t.String()+"_") {
			return t, true
		}
	}
	return 0, false
}

// fitness is how well a quantisation suits the formats that can be computed with.
type fitness int

const (
	useless fitness = iota
	unclear         // the name does not say, or some tensors are usually in another format
	works
)

// suits judges a quantisation by its name. Only the file's header knows for sure: most
// files of a quantisation below 8 bits have some tensors in Q6_K.
func suits(quant string, types []gguf.Type) fitness {
	t, known := mainType(quant)
	_, block := t.Block()
	switch {
	case types == nil:
		return works
	case !known:
		return unclear
	case !slices.Contains(types, t):
		return useless
	case block > 4 && t != gguf.Q8_0 && !slices.Contains(types, gguf.Q6_K):
		return unclear
	}
	return works
}

// preferred are the quantisations to take if none was asked for, best first: small
// with little loss before large.
var preferred = []string{"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q5_K_S", "IQ4_NL", "IQ4_XS", "Q4_K_L", "MXFP4", "Q4_1", "Q4_0", "Q6_K", "Q8_0", "Q5_1", "Q5_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_S", "Q2_K", "F16", "BF16", "F32"}

// best returns the file whose quantisation is to be taken if none was asked for; ok is
// false if none can be computed with.
func best(files []listed, types []gguf.Type) (listed, bool) {
	for _, least := range []fitness{works, unclear} {
		for _, quant := range preferred {
			i := slices.IndexFunc(files, func(f listed) bool { return quantOf(f.Path) == quant && suits(quant, types) >= least })
			if i >= 0 {
				return files[i], true
			}
		}
	}
	i := slices.IndexFunc(files, func(f listed) bool { return suits(quantOf(f.Path), types) != useless })
	if i < 0 {
		return listed{}, false
	}
	return files[i], true
}

// quantsOf returns the quantisations of files that can be computed with, all if types
// is nil, in the order of the files.
func quantsOf(files []listed, types []gguf.Type) (quants []string) {
	for _, f := range files {
		if q := quantOf(f.Path); q != "" && suits(q, types) != useless && !slices.Contains(quants, q) {
			quants = append(quants, q)
		}
	}
	return quants
}
