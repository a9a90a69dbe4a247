// Package emutest builds the emulated GPU for tests and opens devices for them.
package emutest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"m40-llm/infer/fixtures"
)

var build = sync.OnceValues(func() (output []byte, err error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o777); err != nil {
		return nil, err
	}
	// go test runs the binaries of several packages at the same time.
	lock, err := os.OpenFile(filepath.Join(bin, "emu.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	args := []string{"-j", strconv.Itoa(runtime.NumCPU()), "-C", filepath.Join(root, "cudakern"), "emu"}
	if !fixtures.Check() {
		args = append(args, "LEVEL=test")
	}
	return exec.Command("make", args...).CombinedOutput()
})

// Library returns the path of the driver for tests, for cudakern.Load: M40_LLM_LIBCUDA if it is set, else the
// emulated one.
func Library(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("M40_LLM_LIBCUDA"); path != "" {
		return path
	}
	return Emulation(t)
}

// Emulation returns the path of the emulated driver. It builds the driver if its sources have changed, and
// skips the test if there are no sources, no g++ or no make.
func Emulation(t testing.TB) string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		fixtures.Skip(t, "the sources of the emulated GPU are missing")
	}
	for _, tool := range []string{"g++", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			fixtures.Skip(t, tool+", which builds the emulated GPU, is not installed")
		}
	}
	output, err := build()
	if err != nil {
		t.Fatalf("building the emulated GPU: %v\n%s", err, output)
	}
	return filepath.Join(root, "bin", "libcuda-emu.so")
}

// moduleRoot returns the folder of go.mod, the working directory or one above it.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", os.ErrNotExist
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
