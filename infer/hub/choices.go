package hub

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"m40-llm/infer"
	"m40-llm/infer/gguf"
	"m40-llm/infer/placement"
)

// fluentSpeed is the speed in tokens per second, about that of reading, for which more bits are
// given up.
const fluentSpeed = 10

// maxChoices bounds the quantisations in the table of a repository.
const maxChoices = 64

// compare returns the quantisations of a repository with how each would run on this machine, and
// the choice among them. It returns none if the repository has fewer than two, if the machine is
// unknown, or if the header of a file cannot be read in time. The sizes of weights of the others
// are taken from those of that header and the sizes of the files.
func (p *Puller) compare(ctx context.Context, c *client, n name, files []listedFile) (choices []infer.Quantisation, chosen listedFile, why string) {
	files = p.sameModel(files)
	if p.hub.machine == nil || len(files) < 2 {
		return nil, chosen, ""
	}
	shape, of, ok := p.shapeOfOne(ctx, c, n, files)
	if !ok {
		return nil, chosen, ""
	}
	m := p.hub.machine()
	if p.options.ReadBandwidth != nil {
		m.ReadBandwidth = p.options.ReadBandwidth(ctx, m)
	}
	for _, f := range files {
		q := infer.Quantisation{Name: n.repository() + ":" + quantOf(f.Path), Quant: quantOf(f.Path), Size: f.Size}
		if t, known := mainType(q.Quant); !known || supportOf(q.Quant, p.hub.types) == unsupported {
			q.Problem = fmt.Sprintf("weights in %s are not supported yet", q.Quant)
		} else {
			e := shape.Scaled(float64(f.Size)/float64(of.Size), t).Estimate(m)
			q.Fit, q.On, q.TokensPerSecond = &e.Fit, e.Fit.On, e.TokensPerSecond
		}
		choices = append(choices, q)
	}
	i, why := chooseQuant(choices)
	choices[i].Chosen = true
	return choices, files[i], why
}

// sameModel returns those of the files whose names differ from that of the best one in the
// quantisation only, by size, without quantisations of which the repository has several files.
func (p *Puller) sameModel(files []listedFile) (same []listedFile) {
	best, ok := bestFile(files, p.hub.types)
	if !ok {
		return nil
	}
	count := map[string]int{}
	for _, f := range files {
		count[quantOf(f.Path)]++
	}
	for _, f := range files {
		if q := quantOf(f.Path); q != "" && count[q] == 1 && stemOf(f.Path) == stemOf(best.Path) && f.check() == nil && len(same) < maxChoices {
			same = append(same, f)
		}
	}
	slices.SortFunc(same, func(a, b listedFile) int { return cmp.Or(cmp.Compare(a.Size, b.Size), cmp.Compare(a.Path, b.Path)) })
	return same
}

// shapeOfOne reads the header of the smallest usable file.
func (p *Puller) shapeOfOne(ctx context.Context, c *client, n name, files []listedFile) (*placement.Shape, listedFile, bool) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	for _, f := range files {
		if supportOf(quantOf(f.Path), p.hub.types) == unsupported {
			continue
		}
		parts, err := remoteHeaders(ctx, c, p.downloadOf(n, f))
		info := infer.ModelInfo{}
		if err == nil {
			var joined *gguf.File
			if joined, err = gguf.Join(parts); err == nil {
				err = readHeader(&info, joined, p.hub.types)
			}
		}
		return info.Shape, f, err == nil && info.Shape != nil
	}
	return nil, listedFile{}, false
}

// chooseQuant returns the index of the quantisation to choose, and why. Those that fit alongside a
// cache of usual length come first; among them that with most bits which is fluent, but no weights
// of 16 bits or more, which are slower and hardly better.
func chooseQuant(choices []infer.Quantisation) (chosen int, why string) {
	best := func(better func(a, b infer.Quantisation) bool, ok func(infer.Quantisation) bool) int {
		found := -1
		for i, q := range choices {
			if q.Fit != nil && ok(q) && (found < 0 || better(q, choices[found])) {
				found = i
			}
		}
		return found
	}
	larger := func(a, b infer.Quantisation) bool { return a.Size > b.Size }
	fits := func(q infer.Quantisation) bool {
		return bitsOf(q.Quant) < 16 && !q.Fit.InFile && q.Fit.Context > 0 && q.Fit.Context >= min(q.Fit.Trained, placement.CommonContext)
	}
	context := func(i int) string {
		return fmt.Sprintf("with a context of %d", min(choices[i].Fit.Trained, placement.CommonContext))
	}
	if i := best(larger, func(q infer.Quantisation) bool { return fits(q) && q.TokensPerSecond >= fluentSpeed }); i >= 0 {
		return i, fmt.Sprintf("%s has the most bits of those that fit %s and are expected to give %d tokens per second or more", choices[i].Quant, context(i), fluentSpeed)
	}
	smaller := func(a, b infer.Quantisation) bool { return a.Size < b.Size }
	if i := best(smaller, func(q infer.Quantisation) bool { return fits(q) && q.TokensPerSecond > 0 && bitsOf(q.Quant) >= 4 }); i >= 0 {
		return i, fmt.Sprintf("%s is the fastest of 4 bits or more that fits %s", choices[i].Quant, context(i))
	}
	usual := func(a, b infer.Quantisation) bool { return rank(a.Quant) < rank(b.Quant) }
	if i := best(usual, fits); i >= 0 {
		return i, fmt.Sprintf("%s is the usual choice of those that fit %s", choices[i].Quant, context(i))
	}
	longer := func(a, b infer.Quantisation) bool {
		return cmp.Or(cmp.Compare(a.Fit.Context, b.Fit.Context), cmp.Compare(b.Size, a.Size)) > 0
	}
	if i := best(longer, func(q infer.Quantisation) bool { return q.Fit.Context > 0 }); i >= 0 {
		return i, fmt.Sprintf("none fits with the usual context; %s leaves room for the longest", choices[i].Quant)
	}
	if i := best(smaller, func(infer.Quantisation) bool { return true }); i >= 0 {
		return i, fmt.Sprintf("none fits into the memory that is free; %s is the smallest", choices[i].Quant)
	}
	return 0, "none can be used here"
}

// bitsOf returns the bits of a weight that the name of a quantisation says, without scales; 0 if it
// says none.
func bitsOf(quant string) int {
	switch quant {
	case "F32":
		return 32
	case "F16", "BF16":
		return 16
	case "MXFP4", "NVFP4":
		return 4
	}
	for _, r := range quant {
		if r >= '1' && r <= '9' {
			return int(r - '0')
		}
	}
	return 0
}

// rank returns the place of a quantisation among the preferred ones.
func rank(quant string) int {
	if i := slices.Index(preferred, quant); i >= 0 {
		return i
	}
	return len(preferred)
}

// WithQuant returns the name of a quantisation of the repository called name.
func WithQuant(name, quant string) (string, error) {
	n, err := parseName(name)
	switch {
	case err != nil:
		return "", err
	case n.address != nil || n.tag != "" || n.file != "" || n.quant != "":
		return "", invalidName("--quant chooses a quantisation of a repository on Hugging Face, such as org/repo, and %q is none", name)
	case !quantPart.MatchString(quant):
		return "", invalidName("%q is not a quantisation; give one such as Q4_K_M", quant)
	}
	n.quant = quant
	return n.String(), nil
}
