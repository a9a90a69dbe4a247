package emutest

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Faults is an emulated driver in which a call can be made to fail.
type Faults struct {
	Library string // for cudakern.Load
	control []byte // struct control of emu/faulty.c, in shared memory
}

const (
	faultFailAt   = 0
	faultCode     = 8
	faultCalls    = 16
	faultContexts = 24
	faultFailed   = 32
	faultBytes    = 96
)

// NewFaults builds a driver in which no call fails yet. flags are passed to the compiler; with -DcuInit=other
// the driver lacks cuInit.
func NewFaults(t testing.TB, flags ...string) *Faults {
	t.Helper()
	emulation := Emulation(t)
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := &Faults{Library: filepath.Join(dir, "libcuda-faulty.so")}
	path := filepath.Join(dir, "control")
	if err := os.WriteFile(path, make([]byte, faultBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if f.control, err = syscall.Mmap(int(file.Fd()), 0, faultBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-shared", "-fPIC", "-O1", "-Wall", "-DTARGET=\"" + emulation + "\"", "-DCONTROL=\"" + path + "\"", "-o", f.Library}, flags...)
	output, err := exec.Command("g++", append(args, "-x", "c", filepath.Join(root, "cudakern", "emu", "faulty.c"), "-ldl")...).CombinedOutput()
	if err != nil {
		t.Fatalf("building the faulty driver: %v\n%s", err, output)
	}
	return f
}

// FailAt makes call number n from now on fail with code; 0: no call fails.
func (f *Faults) FailAt(n, code int) {
	f.put(faultCalls, 0)
	f.put(faultFailAt, n)
	f.put(faultCode, code)
	clear(f.control[faultFailed:])
}

// Calls returns the number of calls since FailAt.
func (f *Faults) Calls() int { return f.get(faultCalls) }

// Failed returns the name of the call that failed, or "" if none did.
func (f *Faults) Failed() string { return string(bytes.TrimRight(f.control[faultFailed:], "\x00")) }

// Contexts returns the number of open contexts. Closing a context frees everything that was allocated in it.
func (f *Faults) Contexts() int { return f.get(faultContexts) }

func (f *Faults) put(at, n int)  { binary.NativeEndian.PutUint64(f.control[at:], uint64(n)) }
func (f *Faults) get(at int) int { return int(binary.NativeEndian.Uint64(f.control[at:])) }
