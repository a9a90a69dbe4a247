package hub

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"m40-llm/infer/gguf"
)

// quantLabel matches a quantisation in a file name after a separator.
var quantLabel = regexp.MustCompile(`(?i)(?:^|[-._/])(i?q[1-9](?:_[a-z0-9]+)*|tq[12]_0|bf16|fp?16|fp?32|mxfp4|nvfp4)`)

// quantOf returns the quantisation in the name of a model file, in upper case, or "". The
// last one counts, because the name of the model may look like one.
func quantOf(file string) string {
	rest := strings.TrimSuffix(strings.ToLower(file), ".gguf")
	start, end := quantIn(rest)
	switch found := strings.ToUpper(rest[start:end]); found {
	case "FP16":
		return "F16"
	case "FP32":
		return "F32"
	default:
		return found
	}
}

// quantIn returns where the last quantisation in the lower-case name of a file begins and ends; the
// same place if there is none.
func quantIn(rest string) (start, end int) {
	for _, m := range quantLabel.FindAllStringSubmatchIndex(rest, -1) {
		if m[3] == len(rest) || strings.ContainsRune("-._/", rune(rest[m[3]])) {
			start, end = m[2], m[3]
		}
	}
	return start, end
}

// stemOf returns the name of a model file without its folder, part and quantisation, in lower case.
func stemOf(file string) string {
	base := strings.ToLower(gguf.ModelName(path.Base(file)))
	start, end := quantIn(base)
	return strings.Trim(strings.Trim(base[:start], "-._")+"-"+strings.Trim(base[end:], "-._"), "-")
}

// isQuant reports whether the name of file ends with quant or contains it as quantisation.
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

// support is whether the formats of a quantisation are supported.
type support int

const (
	unsupported support = iota
	unclear             // the name does not tell, or some tensors usually have an unsupported format
	supported
)

// supportOf returns the support of a quantisation, judged by its name. Only the header of the
// file is certain: most files below 8 bits have some tensors in Q6_K.
func supportOf(quant string, types []gguf.Type) support {
	t, known := mainType(quant)
	_, block := t.Block()
	switch {
	case types == nil:
		return supported
	case !known:
		return unclear
	case !slices.Contains(types, t):
		return unsupported
	case block > 4 && t != gguf.Q8_0 && !slices.Contains(types, gguf.Q6_K):
		return unclear
	}
	return supported
}

// preferred lists the quantisations to choose if none was requested, best first: small with
// little loss before large. NVFP4 is late, because files that also have scales of whole tensors are refused, and
// GPUs convert it to Q8_0.
var preferred = []string{"Q4_K_M", "Q4_K_S", "Q5_K_M", "Q5_K_S", "IQ4_NL", "IQ4_XS", "Q4_K_L", "MXFP4", "Q4_1", "Q4_0", "Q6_K", "Q8_0", "Q5_1", "Q5_0", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_S", "Q2_K", "NVFP4", "F16", "BF16", "F32"}

// bestFile returns the file to choose if no quantisation was requested; ok is false if none
// is supported.
func bestFile(files []listedFile, types []gguf.Type) (listedFile, bool) {
	for _, least := range []support{supported, unclear} {
		for _, quant := range preferred {
			i := slices.IndexFunc(files, func(f listedFile) bool { return quantOf(f.Path) == quant && supportOf(quant, types) >= least })
			if i >= 0 {
				return files[i], true
			}
		}
	}
	i := slices.IndexFunc(files, func(f listedFile) bool { return supportOf(quantOf(f.Path), types) != unsupported })
	if i < 0 {
		return listedFile{}, false
	}
	return files[i], true
}

// quantsOf returns the supported quantisations of files in their order; nil types supports
// all.
func quantsOf(files []listedFile, types []gguf.Type) (quants []string) {
	for _, f := range files {
		if q := quantOf(f.Path); q != "" && supportOf(q, types) != unsupported && !slices.Contains(quants, q) {
			quants = append(quants, q)
		}
	}
	return quants
}
