// Command nvcc compiles the modules of cudakern/modules.txt with NVIDIA's nvcc to cudakern/fatbin and
// writes a manifest with the hashes of their sources. It fails if a kernel spills registers or uses
// more than cudakern/registers.txt allows. Run it in cudakern.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// flags generate code for sm_52, and PTX that drivers compile for newer devices at run time. No
// multiply-add is contracted, so that results equal those of the emulator; division and square root
// are nvcc's exact ones. Modules may leave functions of their source unused (177).
var flags = []string{
	"-std=c++17", "-O3", "-fmad=false", "-diag-suppress", "177",
	"-gencode", "arch=compute_52,code=[sm_52,compute_52]", "-Wno-deprecated-gpu-targets",
}

const (
	manifestName  = "fatbin/manifest.txt"
	registersName = "registers.txt"
)

func main() {
	updateRegisters := flag.Bool("registers", false, "write the registers that kernels use to "+registersName+" instead of checking against it")
	flag.Parse()
	if err := run(*updateRegisters, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run compiles all modules to fatbin/. updateRegisters: registers.txt is written before it is checked.
func run(updateRegisters bool, log io.Writer) error {
	modules, err := readModules("modules.txt")
	if err != nil {
		return err
	}
	version, err := compilerVersion()
	if err != nil {
		return err
	}
	results, err := compileAll(modules, "fatbin", log)
	if err != nil {
		return err
	}
	used := map[string]int{}
	for _, r := range results {
		maps.Copy(used, r.registers)
	}
	if updateRegisters {
		if err := writeBudget(registersName, used); err != nil {
			return err
		}
	}
	budget, err := readBudget(registersName)
	if err != nil {
		return err
	}
	if err := errors.Join(overBudget(results, budget)...); err != nil {
		return err
	}
	manifest := manifest{version: version, modules: map[string]hashes{}}
	for _, m := range modules {
		if manifest.modules[m.name], err = m.hashes(version); err != nil {
			return err
		}
	}
	return os.WriteFile(manifestName, manifest.format(), 0o666)
}

// module is a line of modules.txt.
type module struct {
	name    string
	source  string   // from cudakern
	defines []string // NAME or NAME=VALUE
}

func readModules(name string) ([]module, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var modules, weights []module // weights: their names, and the defines of each
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("%s: module %s has no source", name, words[0])
		}
		switch {
		case words[0] == "weights":
			weights = append(weights, module{name: words[1], defines: append([]string{"WEIGHT=" + words[1]}, words[2:]...)})
		case strings.Contains(words[0], "%"):
			for _, w := range weights {
				modules = append(modules, module{strings.Replace(words[0], "%", w.name, 1), words[1], slices.Concat(w.defines, words[2:])})
			}
		default:
			modules = append(modules, module{words[0], words[1], words[2:]})
		}
	}
	return modules, nil
}

// hashes are the SHA-256 sums of a module's sources and of its compiled image.
type hashes struct{ sources, image string }

func (m module) hashes(compiler string) (h hashes, err error) {
	if h.sources, err = m.hash(compiler); err != nil {
		return h, err
	}
	image, err := os.ReadFile(m.image("fatbin"))
	sum := sha256.Sum256(image)
	h.image = hex.EncodeToString(sum[:])
	return h, err
}

// image returns the path of the compiled module in dir.
func (m module) image(dir string) string { return filepath.Join(dir, m.name+".fatbin") }

// hash returns the hash of everything that determines the module: its source, all headers, the flags
// and the compiler version.
func (m module) hash(compiler string) (string, error) {
	headers, err := filepath.Glob("*.cuh")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n%q\n", compiler, flags, m.defines)
	for _, name := range append(headers, m.source) {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// compilerVersion returns the version of the installed nvcc, such as V11.8.89.
func compilerVersion() (string, error) {
	out, err := exec.Command("nvcc", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("nvcc of a CUDA toolkit 11 or 12 is needed (Debian: nvidia-cuda-toolkit in non-free): %w", err)
	}
	version := regexp.MustCompile(`\bV\d+\.\d+\.\d+`).Find(out)
	if version == nil {
		return "", fmt.Errorf("cannot find a version in the output of nvcc --version: %q", out)
	}
	return string(version), nil
}

// compiled is the report of ptxas on a module.
type compiled struct {
	module    module
	registers map[string]int // by kernel
	spills    map[string]int // bytes by kernel, only kernels that spill
}

// compileAll writes <module>.fatbin for every module to dir.
func compileAll(modules []module, dir string, log io.Writer) ([]compiled, error) {
	results := make([]compiled, len(modules))
	errs := make([]error, len(modules))
	slots := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i, m := range modules {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			fmt.Fprintln(log, "nvcc", m.name)
			results[i], errs[i] = m.compile(m.image(dir))
		})
	}
	all.Wait()
	return results, errors.Join(errs...)
}

// compile writes the module's code to output. A warning is an error.
func (m module) compile(output string) (compiled, error) {
	args := append(slices.Clone(flags), "-fatbin", "-Xfatbin", "-compress-all", "-Xptxas", "-v", "-o", output, m.source)
	for _, d := range m.defines {
		args = append(args, "-D"+d)
	}
	printed, err := exec.Command("nvcc", args...).CombinedOutput()
	if err == nil && bytes.Contains(printed, []byte("warning")) {
		err = errors.New("nvcc printed a warning")
	}
	if err != nil {
		return compiled{}, fmt.Errorf("module %s: %w: nvcc %s\n%s", m.name, err, strings.Join(args, " "), printed)
	}
	registers, spills, err := parsePtxas(string(printed))
	if err != nil {
		return compiled{}, fmt.Errorf("module %s: %w", m.name, err)
	}
	return compiled{m, registers, spills}, nil
}

var (
	entryLine    = regexp.MustCompile(`Compiling entry function '(\w+)' for 'sm_52'`)
	spillLine    = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	registerLine = regexp.MustCompile(`Used (\d+) registers`)
)

// parsePtxas parses the output of ptxas -v.
func parsePtxas(output string) (registers, spills map[string]int, err error) {
	registers, spills = map[string]int{}, map[string]int{}
	kernel := ""
	for line := range strings.Lines(output) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			kernel = m[1]
		} else if m := spillLine.FindStringSubmatch(line); m != nil {
			stores, _ := strconv.Atoi(m[1])
			loads, _ := strconv.Atoi(m[2])
			if stores+loads > 0 {
				spills[kernel] = stores + loads
			}
		} else if m := registerLine.FindStringSubmatch(line); m != nil && kernel != "" {
			registers[kernel], _ = strconv.Atoi(m[1])
			kernel = ""
		}
	}
	if len(registers) == 0 {
		return nil, nil, fmt.Errorf("the output of ptxas names no kernel: %q", output)
	}
	return registers, spills, nil
}

// overBudget returns an error for each kernel that spills, uses more registers than budget allows, or
// is missing in results or in budget.
func overBudget(results []compiled, budget map[string]int) (found []error) {
	budget = maps.Clone(budget)
	for _, r := range results {
		for _, kernel := range slices.Sorted(maps.Keys(r.registers)) {
			used := r.registers[kernel]
			if spilled := r.spills[kernel]; spilled > 0 {
				found = append(found, fmt.Errorf("%s of module %s spills %d bytes", kernel, r.module.name, spilled))
			}
			if limit, ok := budget[kernel]; !ok {
				found = append(found, fmt.Errorf("%s uses %d registers, but is not in %s: run make registers", kernel, used, registersName))
			} else if used > limit {
				found = append(found, fmt.Errorf("%s uses %d registers, %s allows %d", kernel, used, registersName, limit))
			}
			delete(budget, kernel)
		}
	}
	for _, kernel := range slices.Sorted(maps.Keys(budget)) {
		found = append(found, fmt.Errorf("%s has kernel %s, which is in no module: run make registers", registersName, kernel))
	}
	return found
}

// readBudget reads the maximum registers of each kernel: lines of a name and a number.
func readBudget(name string) (map[string]int, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	budget := map[string]int{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		n := 0
		if len(words) == 2 {
			n, err = strconv.Atoi(words[1])
		}
		if n <= 0 || err != nil {
			return nil, fmt.Errorf("%s: %q is not a kernel and a number of registers", name, strings.TrimSpace(line))
		}
		budget[words[0]] = n
	}
	return budget, nil
}

func writeBudget(name string, used map[string]int) error {
	var text strings.Builder
	text.WriteString("# Maximum number of registers of each kernel on sm_52. make registers updates this file.\n")
	for _, kernel := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&text, "%s %d\n", kernel, used[kernel])
	}
	return os.WriteFile(name, []byte(text.String()), 0o666)
}

// manifest has the hashes of the committed modules and of their sources.
type manifest struct {
	version string // of nvcc
	modules map[string]hashes
}

func (m manifest) format() []byte {
	var text strings.Builder
	fmt.Fprintf(&text, "nvcc %s\n", m.version)
	for _, name := range slices.Sorted(maps.Keys(m.modules)) {
		fmt.Fprintf(&text, "%s %s %s\n", name, m.modules[name].sources, m.modules[name].image)
	}
	return []byte(text.String())
}
