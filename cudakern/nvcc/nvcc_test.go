package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"m40-llm/cudakern/fatbin"
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
	archived := readCommitted(t)
	images := imagesOf(archived)
	for _, m := range modules {
		want, err := m.hashes(committed.version, images[m.name])
		if err != nil {
			t.Fatal(err)
		}
		switch got, ok := committed.modules[m.name]; {
		case !ok:
			t.Errorf("module %s was never compiled: run make kernels", m.name)
		case got.sources != want.sources:
			t.Errorf("the sources of module %s have changed since it was compiled: run make kernels", m.name)
		case got.image != want.image:
			t.Errorf("module %s in its archive was not compiled from these sources: run make kernels", m.name)
		}
		if image, err := fatbin.Read(m.name); err != nil || !bytes.Equal(image, images[m.name]) {
			t.Errorf("the program finds another image of module %s than its archive has, or none: %v", m.name, err)
		}
		delete(committed.modules, m.name)
	}
	for name := range committed.modules {
		t.Errorf("%s has module %s, which is not in modules.txt", manifestName, name)
	}
	if wanted := familiesOf(modules, images); !maps.EqualFunc(archived, wanted, sameNames) {
		t.Errorf("the archives of families are not those of modules.txt: run make kernels")
	}
	for _, name := range []string{"matmul_q4", "matmul", "no_family"} {
		if _, err := fatbin.Read(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("module %s: got the error %v, want that it does not exist", name, err)
		}
	}
}

func sameNames(a, b []fatbin.Module) bool {
	return slices.EqualFunc(a, b, func(a, b fatbin.Module) bool { return a.Name == b.Name })
}

// readCommitted returns the committed archives.
func readCommitted(t *testing.T) families {
	t.Helper()
	committed, err := readFamilies(archives)
	if err != nil {
		t.Fatal(err)
	}
	return committed
}

func TestArchivesOfFamiliesFollowTheirModules(t *testing.T) {
	dir := t.TempDir()
	of := func(names ...string) (modules []fatbin.Module) {
		for _, name := range names {
			modules = append(modules, fatbin.Module{Name: name, Image: []byte("image of " + name)})
		}
		return modules
	}
	first := families{"more": of("more_q4", "more_q8"), "gone": of("gone"), "same": of("same")}
	if err := writeFamilies(dir, nil, first); err != nil {
		t.Fatal(err)
	}
	equal := func(a, b families) bool {
		return maps.EqualFunc(a, b, func(a, b []fatbin.Module) bool { return slices.EqualFunc(a, b, isSame) })
	}
	if got, err := readFamilies(dir); err != nil || !equal(got, first) {
		t.Fatalf("read %v, %v, wrote %v", got, err, first)
	}
	kept := filepath.Join(dir, "same"+fatbin.Suffix)
	if err := os.WriteFile(kept, []byte("not written again"), 0o666); err != nil {
		t.Fatal(err)
	}
	second := families{"more": of("more_q4", "more_q6", "more_q8"), "same": first["same"], "new": of("new")}
	if err := writeFamilies(dir, first, second); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "not written again" {
		t.Errorf("an archive whose modules are the same was written: %q, %v", text, err)
	}
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	delete(second, "same")
	if got, err := readFamilies(dir); err != nil || !equal(got, second) {
		t.Errorf("read %v, %v, wrote %v", got, err, second)
	}
}

// TestCommittedKernelsDoNotSpillAndStayWithinTheirRegisterBudget reads the code of the committed images.
func TestCommittedKernelsDoNotSpillAndStayWithinTheirRegisterBudget(t *testing.T) {
	fixtures.NeedCheck(t)
	if _, err := exec.LookPath("cuobjdump"); err != nil {
		fixtures.Skip(t, "cuobjdump of the CUDA toolkit is not installed")
	}
	modules := readTable(t)
	results, err := resourcesOf(modules, imagesOf(readCommitted(t)))
	if err != nil {
		t.Fatal(err)
	}
	checkBudget(t, results)
}

// The resident kernel must not load what it writes through the read-only cache, which is not coherent. It loads all in the other way.
func TestTheResidentKernelDoesNotUseTheReadOnlyCache(t *testing.T) {
	fixtures.NeedCheck(t)
	if _, err := exec.LookPath("cuobjdump"); err != nil {
		fixtures.Skip(t, "cuobjdump of the CUDA toolkit is not installed")
	}
	tested := 0
	modules := readTable(t)
	images := imagesOf(readCommitted(t))
	for _, m := range modules {
		if m.source != "persist.cu" {
			continue
		}
		for _, code := range []string{"-ptx", "-sass"} {
			out, err := fatbin.Dump(images[m.name], code)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(out), "LDG") && !strings.Contains(string(out), "ld.global") {
				t.Errorf("%s %s has no load at all", m.name, code)
			}
			for _, load := range []string{"ld.global.nc", "LDG.E.CI", ".CONSTANT"} {
				if n := strings.Count(string(out), load); n > 0 {
					t.Errorf("module %s has %d loads %s", m.name, n, load)
				}
			}
			tested++
		}
	}
	if tested == 0 {
		t.Error("there is no module of persist.cu")
	}
}

// TestKernelsCompileWithoutWarnings compiles all modules, which takes minutes: only with M40_LLM_TORTURE=1.
// That the committed images are of the committed sources follows from their hashes.
func TestKernelsCompileWithoutWarnings(t *testing.T) {
	if !fixtures.Torture() {
		t.SkipNow()
	}
	if _, err := exec.LookPath("nvcc"); err != nil {
		fixtures.Skip(t, "nvcc is not installed")
	}
	modules := readTable(t)
	images, err := compileAll(modules, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	results, err := resourcesOf(modules, images)
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

func TestKernelsOverTheirRegisterBudgetAreReported(t *testing.T) {
	registers, spills, err := parseResources(`Fatbin elf code:
arch = sm_61
Resource usage:
 Function big:
  REG:64 STACK:8 SHARED:0 LOCAL:0
 Function small:
  REG:6 STACK:0 SHARED:0 LOCAL:0
arch = sm_80
 Function big:
  REG:60 STACK:32 SHARED:0 LOCAL:0
 Function small:
  REG:7 STACK:0 SHARED:0 LOCAL:0
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
	write("a.cu", "#include \"kernel.cuh\"\n")
	write("kernel.cuh", "#include WEIGHT_FILE(WEIGHT)\n")
	write("weight_q.cuh", "one")
	write("other.cuh", "two")
	hash := func(m module, compiler string) string {
		t.Helper()
		h, err := m.hash(compiler)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a := module{"a", "a", "a.cu", []string{"WEIGHT=q"}}
	hashes := []string{
		hash(a, "V11.8.89"),
		hash(a, "V12.0.0"),
		hash(module{"a", "a", "a.cu", []string{"WEIGHT=q", "Y"}}, "V11.8.89"),
		hash(module{"a", "a", "a.cu", []string{"WEIGHT=q", "compute_61"}}, "V11.8.89"),
	}
	for _, name := range []string{"weight_q.cuh", "kernel.cuh", "a.cu"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(text)+"// changed")
		hashes = append(hashes, hash(a, "V11.8.89"))
	}
	write("other.cuh", "three")
	if hash(a, "V11.8.89") != hashes[len(hashes)-1] {
		t.Error("the hash of a module covers a header that it does not include")
	}
	slices.Sort(hashes)
	if len(slices.Compact(hashes)) != 7 {
		t.Errorf("two of seven different modules have the same hash: %q", hashes)
	}
}
