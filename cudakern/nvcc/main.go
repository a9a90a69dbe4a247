// Command nvcc compiles the modules of cudakern/modules.txt with NVIDIA's nvcc to the archives of cudakern/fatbin and
// writes a manifest with the hashes of their sources. Modules whose hashes are in the manifest are not
// compiled again. It fails if a kernel spills registers or uses more than cudakern/registers.txt allows.
// Run it in cudakern.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
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

	"m40-llm/cudakern/fatbin"
)

// commonFlags: no multiply-add is contracted, so that results equal those of the emulator; division and
// square root are nvcc's exact ones. Modules may leave functions of their source unused (177).
var commonFlags = []string{"-std=c++17", "-O3", "-fmad=false", "-diag-suppress", "177", "-Wno-deprecated-gpu-targets"}

const (
	archives      = "fatbin"
	manifestName  = archives + "/manifest.txt"
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

// run compiles all modules. updateRegisters: registers.txt is written before it is checked.
func run(updateRegisters bool, log io.Writer) error {
	modules, err := readModules("modules.txt")
	if err != nil {
		return err
	}
	version, err := compilerVersion()
	if err != nil {
		return err
	}
	before, err := readFamilies(archives)
	if err != nil {
		return err
	}
	images := imagesOf(before)
	changed, err := changedModules(modules, images, version)
	if err != nil {
		return err
	}
	fresh, err := compileAll(changed, log)
	if err != nil {
		return err
	}
	maps.Copy(images, fresh)
	if err := writeFamilies(archives, before, familiesOf(modules, images)); err != nil {
		return err
	}
	manifest := manifest{version: version, modules: map[string]hashes{}}
	for _, m := range modules {
		if manifest.modules[m.name], err = m.hashes(version, images[m.name]); err != nil {
			return err
		}
	}
	if err := os.WriteFile(manifestName, manifest.format(), 0o666); err != nil {
		return err
	}
	results, err := resourcesOf(modules, images)
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
	return errors.Join(overBudget(results, budget)...)
}

// changedModules returns the modules that the manifest does not have as they are.
func changedModules(modules []module, images map[string][]byte, version string) (changed []module, err error) {
	committed, err := readManifest(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return modules, nil
	}
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		h, err := m.hashes(version, images[m.name])
		if err != nil {
			return nil, err
		}
		if h != committed.modules[m.name] {
			changed = append(changed, m)
		}
	}
	return changed, nil
}

// module is a line of modules.txt.
type module struct {
	name    string
	family  string   // name without the weight type; of the archive with its image
	source  string   // from cudakern
	defines []string // NAME or NAME=VALUE
}

// flags returns the options of nvcc for m. Words like compute_61 among its defines are the architectures
// it is compiled for: code for that architecture, and PTX that drivers compile for newer devices at run time. Words like ptx_90
// add PTX without code. Without any of them it is compute_52.
func (m module) flags() []string {
	flags := slices.Clone(commonFlags)
	architectures := slices.DeleteFunc(slices.Clone(m.defines), func(d string) bool { return !strings.HasPrefix(d, "compute_") })
	if len(architectures) == 0 && !m.isPTX() {
		architectures = []string{"compute_52"}
	}
	for _, a := range architectures {
		number := strings.TrimPrefix(a, "compute_")
		flags = append(flags, "-gencode", fmt.Sprintf("arch=compute_%s,code=[sm_%s,compute_%s]", number, number, number))
	}
	for _, d := range m.defines {
		if number, ok := strings.CutPrefix(d, "ptx_"); ok {
			flags = append(flags, "-gencode", fmt.Sprintf("arch=compute_%s,code=compute_%s", number, number))
		} else if !strings.HasPrefix(d, "compute_") {
			flags = append(flags, "-D"+d)
		}
	}
	return flags
}

// isPTX reports whether m has PTX but no code.
func (m module) isPTX() bool {
	has := func(prefix string) bool {
		return slices.ContainsFunc(m.defines, func(d string) bool { return strings.HasPrefix(d, prefix) })
	}
	return has("ptx_") && !has("compute_")
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
		case strings.HasSuffix(words[0], "_%"), strings.HasSuffix(words[0], "_@"):
			only, defines := onlyTypes(words[2:])
			for _, w := range weights {
				if strings.HasSuffix(words[0], "@") && slices.Contains(w.defines, "SCALE_BYTES=0") || only != nil && !slices.Contains(only, w.name) {
					continue
				}
				family := strings.TrimRight(words[0], "_%@")
				modules = append(modules, module{family + "_" + w.name, family, words[1], slices.Concat(w.defines, defines)})
			}
		default:
			modules = append(modules, module{words[0], words[0], words[1], words[2:]})
		}
	}
	return modules, nil
}

// onlyTypes returns the weight types that a word like only=f16,q8_0 names, nil if there is none, and the other words.
func onlyTypes(words []string) (only, others []string) {
	for _, word := range words {
		if types, ok := strings.CutPrefix(word, "only="); ok {
			only = strings.Split(types, ",")
		} else {
			others = append(others, word)
		}
	}
	return only, others
}

// hashes are the SHA-256 sums of a module's sources and of its compiled image.
type hashes struct{ sources, image string }

func (m module) hashes(compiler string, image []byte) (h hashes, err error) {
	h.sources, err = m.hash(compiler)
	sum := sha256.Sum256(image)
	h.image = hex.EncodeToString(sum[:])
	return h, err
}

// hash returns the hash of everything that determines the module: its source and what it includes, the
// flags and the compiler version.
func (m module) hash(compiler string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%q\n", compiler, m.flags())
	names := []string{m.source}
	for i := 0; i < len(names); i++ {
		text, err := os.ReadFile(names[i])
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", names[i], len(text), text)
		for _, include := range includeLine.FindAllStringSubmatch(string(text), -1) {
			name := filepath.Join(filepath.Dir(names[i]), include[1])
			if include[1] == "" {
				name = m.weightFile()
			}
			if !slices.Contains(names, name) && !strings.HasSuffix(name, ".h") { // the emulation's are .h
				names = append(names, name)
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// includeLine is an include of a file, or, without a name, of the definition of the weight type.
var includeLine = regexp.MustCompile(`(?m)^#include (?:"(.+)"|WEIGHT_FILE)`)

// weightFile returns the header that defines the module's weight type.
func (m module) weightFile() string {
	for _, d := range m.defines {
		if name, ok := strings.CutPrefix(d, "WEIGHT="); ok {
			return "weight_" + name + ".cuh"
		}
	}
	return ""
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

// compiled are the resources of a module's kernels, the most of any architecture.
type compiled struct {
	module    module
	registers map[string]int // by kernel
	spills    map[string]int // bytes of the stack by kernel, only kernels that use it
}

// compileAll returns the images of modules by their names.
func compileAll(modules []module, log io.Writer) (map[string][]byte, error) {
	inOrder, errs := make([][]byte, len(modules)), make([]error, len(modules))
	inParallel(len(modules), func(i int) {
		fmt.Fprintln(log, "nvcc", modules[i].name)
		inOrder[i], errs[i] = modules[i].compile()
	})
	images := map[string][]byte{}
	for i, m := range modules {
		images[m.name] = inOrder[i]
	}
	return images, errors.Join(errs...)
}

// inParallel calls f with every i below n, one call for each CPU at a time.
func inParallel(n int, f func(i int)) {
	slots := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}

// compile returns the module's image. nvcc does not compress it, because archives are smaller so. A warning is an error.
func (m module) compile() ([]byte, error) {
	dir, err := os.MkdirTemp("", "nvcc")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	output := filepath.Join(dir, m.name+".fatbin")
	args := append(m.flags(), "-fatbin", "-Xfatbin", "-compress=false", "-o", output, m.source)
	printed, err := exec.Command("nvcc", args...).CombinedOutput()
	if err == nil && bytes.Contains(printed, []byte("warning")) {
		err = errors.New("nvcc printed a warning")
	}
	if err != nil {
		return nil, fmt.Errorf("module %s: %w: nvcc %s\n%s", m.name, err, strings.Join(args, " "), printed)
	}
	return os.ReadFile(output)
}

// resourcesOf returns the resources of the kernels in the images of modules.
func resourcesOf(modules []module, images map[string][]byte) ([]compiled, error) {
	results, errs := make([]compiled, len(modules)), make([]error, len(modules))
	inParallel(len(modules), func(i int) {
		m := modules[i]
		output, err := m.usage(images[m.name])
		if err == nil {
			results[i].module = m
			results[i].registers, results[i].spills, err = parseResources(string(output))
		}
		if err != nil {
			errs[i] = fmt.Errorf("module %s: %w", m.name, err)
		}
	})
	return results, errors.Join(errs...)
}

// usage returns what cuobjdump -res-usage prints for the module's image. PTX is compiled for the architecture that it names.
func (m module) usage(image []byte) ([]byte, error) {
	if !m.isPTX() {
		return fatbin.Dump(image, "-res-usage")
	}
	output, err := fatbin.Dump(image, "-ptx")
	if err != nil {
		return nil, err
	}
	_, text, _ := bytes.Cut(output, []byte("\n.version"))
	target := ptxTarget.FindSubmatch(text)
	if target == nil || bytes.Contains(text, []byte("\n.version")) {
		return nil, errors.New("it should have PTX for one architecture")
	}
	temporary, err := os.MkdirTemp("", "nvcc")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temporary)
	ptx, cubin := filepath.Join(temporary, "module.ptx"), filepath.Join(temporary, "module.cubin")
	if err := os.WriteFile(ptx, append([]byte(".version"), text...), 0o666); err != nil {
		return nil, err
	}
	if printed, err := exec.Command("ptxas", "-arch="+string(target[1]), "-o", cubin, ptx).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("ptxas: %w\n%s", err, printed)
	}
	output, err = exec.Command("cuobjdump", "-res-usage", cubin).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cuobjdump: %w\n%s", err, output)
	}
	return output, err
}

var ptxTarget = regexp.MustCompile(`(?m)^\.target (sm_\d+)`)

var resourceLine = regexp.MustCompile(`Function (\w+):\s+REG:(\d+) STACK:(\d+)`)

// parseResources parses the output of cuobjdump -res-usage. Registers spill to the stack.
func parseResources(output string) (registers, spills map[string]int, err error) {
	registers, spills = map[string]int{}, map[string]int{}
	for _, m := range resourceLine.FindAllStringSubmatch(output, -1) {
		used, _ := strconv.Atoi(m[2])
		stack, _ := strconv.Atoi(m[3])
		registers[m[1]] = max(registers[m[1]], used)
		if stack > 0 {
			spills[m[1]] = max(spills[m[1]], stack)
		}
	}
	if len(registers) == 0 {
		return nil, nil, fmt.Errorf("the output of cuobjdump names no kernel: %q", output)
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
			if spilled := r.spills[kernel]; spilled > maxSpill(kernel) {
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

// maxSpill is how many bytes of the stack a kernel may use. In a resident kernel, what is needed after a phase and the parameters of attention take registers that they
// do not take in a kernel of its own, and the limit is what leaves room for two blocks of 256 threads. mma.cu says what waits on the stack. While rows of a product of few
// rows are normalized, up to 10 words do, once for all products. In products of 16 rows, addresses do, which are computed once, and in attention those of the next codes of quantized caches, or of sixteen queries over a latent cache of any format.
func maxSpill(kernel string) int {
	switch {
	case strings.HasPrefix(kernel, "persist_"):
		return 480
	case strings.Contains(kernel, "_mma_large"):
		return 104
	case strings.HasSuffix(kernel, "_many"):
		return 1280 + 96 // the sums that wait, and what a block of inputs does not need
	case strings.HasPrefix(kernel, "attention_heads_quantized_d128"):
		return 48
	case kernel == "attention_any_latent_d32_rows":
		return 32
	case strings.HasSuffix(kernel, "_mma_glu_n4"), strings.HasSuffix(kernel, "_mma_norm_n4"):
		return 40
	case strings.HasPrefix(kernel, "matmul_q2_k_few"), strings.HasPrefix(kernel, "matmul_q6_k_few"):
		return 72
	case strings.HasSuffix(kernel, "_few_n16"), strings.HasSuffix(kernel, "_few_grouped"):
		return 32
	}
	return 0
}

func writeBudget(name string, used map[string]int) error {
	var text strings.Builder
	text.WriteString("# Maximum number of registers of each kernel on any architecture. make registers updates this file.\n")
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

// readManifest parses what manifest.format wrote.
func readManifest(name string) (manifest, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return manifest{}, err
	}
	m := manifest{modules: map[string]hashes{}}
	for line := range strings.Lines(string(text)) {
		switch words := strings.Fields(line); {
		case len(words) == 2 && words[0] == "nvcc":
			m.version = words[1]
		case len(words) == 3:
			m.modules[words[0]] = hashes{words[1], words[2]}
		default:
			return manifest{}, fmt.Errorf("%s: %q is not a module with the hashes of its sources and image: run make kernels", name, strings.TrimSpace(line))
		}
	}
	return m, nil
}
