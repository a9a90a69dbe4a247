package commands

import (
	"bytes"
	"context"
	"log/slog"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"m40-llm/cudakern/emutest"
	"m40-llm/handlers/cli"
	"m40-llm/infer"
	"m40-llm/infer/cpu"
	"m40-llm/infer/cuda"
	"m40-llm/infer/device"
	"m40-llm/infer/fixtures"
	"m40-llm/infer/gguf"
	"m40-llm/infer/gguf/gguftest"
)

func TestAutoTakesTheGPUOrSaysWhyNot(t *testing.T) {
	emulation := emutest.Emulation(t)
	for _, c := range []struct {
		name   string
		env    map[string]string
		model  gguftest.Llama
		kind   string
		notice string
		logged bool
	}{
		{"a GPU that can is taken", nil, gguftest.Llama{Type: gguf.Q8_0}, "cuda", "", false},
		{"beside units that there are not the CPU computes", map[string]string{"M40_LLM_CUDA_UNITS": "magic"}, gguftest.Llama{}, "cpu", `M40_LLM_CUDA_UNITS is "magic"`, true},
		{"without a driver the CPU computes, which is nothing to log", map[string]string{"M40_LLM_LIBCUDA": "/nowhere/libcuda.so.1"}, gguftest.Llama{}, "cpu", "/nowhere/libcuda.so.1", false},
		{"without a device the CPU computes", map[string]string{"M40_LLM_EMU_DEVICES": "0"}, gguftest.Llama{}, "cpu", "finds no device", true},
		{"beside an old device the CPU computes", map[string]string{"M40_LLM_EMU_CAPABILITY": "3.5"}, gguftest.Llama{}, "cpu", "compute capability 3.5", true},
		{"weights that can be converted are no reason for the CPU", nil, gguftest.Llama{Type: gguf.IQ2_XS, Dim: 256, FFN: 256}, "cuda", "", false},
		{"an operation without a kernel is computed on the CPU", nil, gguftest.Llama{Dim: 132, Heads: 2, KVHeads: 1}, "cpu", "Attention: no attention kernel supports heads of 66 elements", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			t.Setenv("M40_LLM_LIBCUDA", emulation)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			f, err := gguf.Parse(gguftest.TinyLlama(c.model))
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			d, err := openBest(f, cpu.Options{Threads: 1}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			i := d.Info()
			if i.Kind != c.kind || !strings.Contains(i.Notice, c.notice) || (i.Notice == "") != (c.notice == "") {
				t.Errorf("got %+v", i)
			}
			if (log.Len() > 0) != c.logged {
				t.Errorf("logged %q", log.String())
			}
		})
	}
}

// Who names the GPU gets it or one line that says why not, and never the CPU.
func TestAutoTakesTheGPUForACompanionFile(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	for _, name := range []string{"gemma3", "gemma4", "internvl", "lfm2", "llava", "mistral3", "qwen2vl", "qwen25vl", "qwen3vl", "smolvlm"} {
		t.Run(name, func(t *testing.T) {
			f, err := gguf.Open(fixtures.Images(t, name, "mmproj.gguf"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var log bytes.Buffer
			d, err := openBest(f, cpu.Options{Threads: 1}, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Info().Kind != "cuda" || log.Len() > 0 {
				t.Errorf("got the device %s, logged %q", d.Info().Kind, log.String())
			}
		})
	}
}

func TestWhoAsksForTheGPUByNameIsToldWhyItCannotBe(t *testing.T) {
	emulation, faults := emutest.Emulation(t), emutest.NewFaults(t)
	crashing := filepath.Join(t.TempDir(), "libcuda-crashing.so")
	source := "__attribute__((constructor)) static void begin(void) { __builtin_trap(); }"
	compile := exec.Command("g++", "-shared", "-fPIC", "-o", crashing, "-x", "c", "-")
	compile.Stdin = strings.NewReader(source)
	if output, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	for _, c := range []struct {
		name, library string
		env           map[string]string
		failAt, code  int
		says          string
	}{
		{name: "no driver", library: "/nowhere/libcuda.so.1", says: "no usable CUDA driver: /nowhere/libcuda.so.1"},
		{name: "a library and no driver in the kernel", library: faults.Library, failAt: 1, code: 100, says: "cuInit failed"},
		{name: "no device", library: emulation, env: map[string]string{"M40_LLM_EMU_DEVICES": "0"}, says: "finds no device"},
		{name: "a device too old", library: emulation, env: map[string]string{"M40_LLM_EMU_CAPABILITY": "3.5"}, says: "compute capability 3.5; the kernels need 5.2 or later"},
		{name: "a driver that fails later", library: faults.Library, failAt: 4, code: 999, says: "cuDeviceGet"},
		{name: "a driver that crashes", library: crashing, says: "the driver failed when it was asked"},
	} {
		for command, args := range map[string][]string{
			"serve":                  {"serve", "--addr", ":0"},
			"serve in one process":   {"serve", "--addr", ":0", "--worker", "never"},
			"serve in two processes": {"serve", "--addr", ":0", "--worker", "always"},
			"run":                    {"run", "guide", "hello"},
			"bench":                  {"bench", "-p", "1", "-n", "1", "-r", "1"},
		} {
			if inProcess := !strings.HasPrefix(command, "serve"); inProcess && (c.library == crashing || c.failAt > 0) {
				continue // it would take the test down, or fails once and run tries twice
			}
			t.Run(command+", "+c.name, func(t *testing.T) {
				t.Setenv("M40_LLM_LIBCUDA", c.library)
				for name, value := range c.env {
					t.Setenv(name, value)
				}
				faults.FailAt(c.failAt, c.code)
				var out, errs bytes.Buffer
				terminal := &cli.Terminal{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(string) string { return "" }}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a server that starts
				defer cancel()
				code := run(ctx, terminal, append(args, "--device", "cuda", "--data", t.TempDir()))
				said := errs.String()
				if code != cli.ExitFailed || strings.Count(said, "\n") != 1 || !strings.Contains(said, c.says) || !strings.Contains(said, "--device auto") || out.Len() > 0 {
					t.Errorf("code %d, %q and %q; want one line that says %q", code, said, out.String(), c.says)
				}
			})
		}
	}
}

// What auto lists must be computed by one of the two, and models move to the CPU when the
// GPU fails.
func TestTheCPUHasKernelsForAllThatTheGPUHas(t *testing.T) {
	for _, typ := range cuda.WeightTypes() {
		if !slices.Contains(cpu.WeightTypes(), typ) {
			t.Errorf("there are no kernels for %s on the CPU", typ)
		}
	}
}

func TestAServerHasAWorkerWhereThereMayBeAGPU(t *testing.T) {
	for path, gpu := range map[string]bool{emutest.Emulation(t): true, "/nowhere/libcuda.so.1": false} {
		t.Setenv("M40_LLM_LIBCUDA", path)
		if got := auto().gpu; got != gpu {
			t.Errorf("with the driver %s: %v", path, got)
		}
	}
}

func TestWhatHasNoRoomOnAGPUCountsOnTheCPU(t *testing.T) {
	const much, more = 1 << 60, 1 << 58
	flags := addEngineFlags(cli.NewFlags("serve", "", ""))
	free := func(s infer.Status) int64 { return flags.machine(s, 16).Free() }
	if onCPU := free(infer.Status{Device: device.Info{Kind: "cpu", Memory: much}}); onCPU <= 0 || onCPU >= more {
		t.Errorf("on the CPU, %d bytes are free now", onCPU)
	}
	if got := free(infer.Status{}); got <= 0 || got >= more {
		t.Errorf("before there is a device, %d bytes are free", got)
	}
	loaded := infer.Status{State: infer.StateReady, Model: infer.ModelInfo{Size: more}, Cache: infer.Cache{Used: more}}
	if got := free(loaded); got <= 2*more || got >= 3*more {
		t.Errorf("with a model loaded that takes %d bytes, %d are free for another", int64(2*more), got)
	}
	if got := free(infer.Status{Device: device.Info{Kind: "cuda", Memory: much, Dedicated: true}}); got <= much || got >= much+more {
		t.Errorf("on a GPU with %d free bytes and the CPU together, it is %d", int64(much), got)
	}
}

func TestADownloadIsJudgedByTheGPUWhereThereIsOne(t *testing.T) {
	t.Setenv("M40_LLM_LIBCUDA", emutest.Emulation(t))
	if dev := probeGPU(); !dev.Dedicated || dev.Memory <= 0 {
		t.Errorf("of the GPU it is known: %+v", dev)
	}
	t.Setenv("M40_LLM_LIBCUDA", "/nowhere/libcuda.so.1")
	if dev := probeGPU(); dev.Dedicated || dev.Memory != 0 {
		t.Errorf("without a driver there is %+v", dev)
	}
}
