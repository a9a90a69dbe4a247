package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"m40-llm/infer/fixtures"
)

func readTable(t *testing.T) []module {
	t.Helper()
	t.Chdir("..")
	modules, err := readModules("modules.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) == 0 {
		t.Fatal("modules.txt has no module")
	}
	return modules
}

func TestCommittedModulesWereCompiledFromTheCommittedSources(t *testing.T) {
	modules := readTable(t)
	committed, err := readManifest(manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no compiled modules are committed yet")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		want, err := m.hashes(committed.version)
		if err != nil {
			t.Fatal(err)
		}
		switch got, ok := committed.modules[m.name]; {
		case !ok:
			t.Errorf("module %s was never compiled: run make kernels", m.name)
		case got.sources != want.sources:
			t.Errorf("the sources of module %s have changed since it was compiled: run make kernels", m.name)
		case got.image != want.image:
			t.Errorf("%s was not compiled from these sources: run make kernels", m.image("fatbin"))
		}
		delete(committed.modules, m.name)
	}
	for name := range committed.modules {
		t.Errorf("%s has module %s, which is not in modules.txt", manifestName, name)
	}
	images, err := filepath.Glob("fatbin/*.fatbin")
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != len(modules) {
		t.Errorf("%d modules are compiled, modules.txt has %d", len(images), len(modules))
	}
}

// TestCommittedKernelsDoNotSpillAndStayWithinTheirRegisterBudget reads the code of the committed images.
func TestCommittedKernelsDoNotSpillAndStayWithinTheirRegisterBudget(t *testing.T) {
	if _, err := exec.LookPath("cuobjdump"); err != nil {
		fixtures.Skip(t, "cuobjdump of the CUDA toolkit is not installed")
	}
	var results []compiled
	for _, m := range readTable(t) {
		output, err := exec.Command("cuobjdump", "-res-usage", m.image("fatbin")).CombinedOutput()
		if err != nil {
			t.Fatalf("cuobjdump of module %s: %v\n%s", m.name, err, output)
		}
		results = append(results, resources(t, m, string(output)))
	}
	checkBudget(t, results)
}

// TestKernelsCompileWithoutWarnings compiles all modules, which takes minutes: only with M40_LLM_TORTURE=1.
// That the committed images are of the committed sources follows from their hashes.
func TestKernelsCompileWithoutWarnings(t *testing.T) {
	if os.Getenv("M40_LLM_TORTURE") != "1" {
		t.SkipNow()
	}
	if _, err := exec.LookPath("nvcc"); err != nil {
		fixtures.Skip(t, "nvcc is not installed")
	}
	results, err := compileAll(readTable(t), t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	checkBudget(t, results)
}

func checkBudget(t *testing.T, results []compiled) {
	t.Helper()
	budget, err := readBudget(registersName)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range overBudget(results, budget) {
		t.Error(err)
	}
}

var resourceLine = regexp.MustCompile(`Function (\w+):\s+REG:(\d+) STACK:(\d+)`)

// resources parses the output of cuobjdump -res-usage. Registers spill to the stack.
func resources(t *testing.T, m module, output string) compiled {
	t.Helper()
	result := compiled{m, map[string]int{}, map[string]int{}}
	for _, match := range resourceLine.FindAllStringSubmatch(output, -1) {
		result.registers[match[1]], _ = strconv.Atoi(match[2])
		result.spills[match[1]], _ = strconv.Atoi(match[3])
	}
	if len(result.registers) == 0 {
		t.Fatalf("cuobjdump names no kernel of module %s: %q", m.name, output)
	}
	return result
}

func TestKernelsOverTheirRegisterBudgetAreReported(t *testing.T) {
	registers, spills, err := parsePtxas(`ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'big' for 'sm_52'
ptxas info    : Function properties for big
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 64 registers, 348 bytes cmem[0]
ptxas info    : Compiling entry function 'small' for 'sm_52'
ptxas info    : Function properties for small
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 7 registers, 348 bytes cmem[0]
`)
	if err != nil {
		t.Fatal(err)
	}
	results := []compiled{{module{name: "m"}, registers, spills}}
	for _, c := range []struct {
		budget map[string]int
		want   []string
	}{
		{map[string]int{"big": 64, "small": 8}, []string{"big of module m spills 32 bytes"}},
		{map[string]int{"big": 63, "gone": 1}, []string{
			"big of module m spills 32 bytes",
			"big uses 64 registers, registers.txt allows 63",
			"small uses 7 registers, but is not in registers.txt: run make registers",
			"registers.txt has kernel gone, which is in no module: run make registers",
		}},
	} {
		var got []string
		for _, err := range overBudget(results, c.budget) {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("with %v:\n%s\nwant\n%s", c.budget, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}

func TestTheHashOfAModuleCoversSourceHeadersDefinesAndCompiler(t *testing.T) {
	t.Chdir(t.TempDir())
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("a.cu", "one")
	write("kernel.cuh", "two")
	hash := func(m module, compiler string) string {
		t.Helper()
		h, err := m.hash(compiler)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a := module{"a", "a.cu", []string{"X"}}
	hashes := []string{
		hash(a, "V11.8.89"),
		hash(a, "V12.0.0"),
		hash(module{"a", "a.cu", []string{"X", "Y"}}, "V11.8.89"),
	}
	write("a.cu", "three")
	hashes = append(hashes, hash(a, "V11.8.89"))
	write("kernel.cuh", "four")
	hashes = append(hashes, hash(a, "V11.8.89"))
	slices.Sort(hashes)
	if len(slices.Compact(hashes)) != 5 {
		t.Errorf("two of five different modules have the same hash: %q", hashes)
	}
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
