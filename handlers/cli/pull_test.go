package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"m40-llm/infer"
	"m40-llm/infer/fault"
	"m40-llm/infer/placement"
)

// fakeDownloader answers with its fields.
type fakeDownloader struct {
	download infer.Download
	resolved error
	fit      *placement.Fit
	pull     func(ctx context.Context, force bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error)
}

func (d *fakeDownloader) Resolve(_ context.Context, name string) (infer.Download, error) {
	d.download.Name = name
	return d.download, d.resolved
}

func (d *fakeDownloader) Inspect(_ context.Context, got infer.Download) (infer.Download, error) {
	d.download.Fit = d.fit
	return d.download, nil
}

func (d *fakeDownloader) Pull(ctx context.Context, got infer.Download, force bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error) {
	if !reflect.DeepEqual(got, d.download) {
		return infer.ModelInfo{}, fmt.Errorf("pulled %+v", got)
	}
	return d.pull(ctx, force, progress)
}

// terminalOf returns a Terminal over in, out and errs.
func terminalOf(in string) (t *Terminal, out, errs *strings.Builder) {
	out, errs = new(strings.Builder), new(strings.Builder)
	return &Terminal{In: strings.NewReader(in), Out: out, Err: errs, Env: func(string) string { return "" }}, out, errs
}

func TestPull(t *testing.T) {
	download := infer.Download{File: "org/repo/m.gguf", Size: 2_000_000_000, DiskFree: 5e9, MemoryFree: 1e9, Partial: 5e8, Notice: "Q8_0 is\x1b[2J chosen"}
	steps := func(progress func(infer.DownloadProgress)) {
		p := infer.DownloadProgress{Phase: infer.PhaseDownloading, File: download.File, Total: download.Size}
		for _, done := range []int64{5e8, 5.1e8, 1e9} {
			p.Done, p.BytesPerSecond, p.ETASeconds = done, 1e7, float64(p.Total-done)/1e7
			progress(p)
		}
		progress(infer.DownloadProgress{Phase: infer.PhaseWaiting, Done: 1e9, Total: p.Total, Notice: "the connection \x1b]0;x\abroke"})
		progress(infer.DownloadProgress{Phase: infer.PhaseDone, Done: p.Total, Total: p.Total})
	}
	t.Run("a pull says what fits, how far it is, and how the model is called", func(t *testing.T) {
		d := &fakeDownloader{download: download, pull: func(_ context.Context, _ bool, progress func(infer.DownloadProgress)) (infer.ModelInfo, error) {
			steps(progress)
			return infer.ModelInfo{Name: "m", Fit: &placement.Fit{Context: 4096, Needs: 9e8, Trained: 8192, Whole: 16e8, Free: 1e9}}, nil
		}}
		term, out, errs := terminalOf("")
		if err := Pull(t.Context(), term, d, "org/repo", false); err != nil {
			t.Fatal(err)
		}
		want := `org/repo/m.gguf, 2.0 GB, 500 MB already downloaded; free on the disk: 5.0 GB; free memory: 1.0 GB
note: the weights need more memory than is free now; a smaller quantisation or model needs less
note: Q8_0 is chosen
downloading  25%  500 MB of 2.0 GB  10.0 MB/s  2m30s left
downloading  50%  1.0 GB of 2.0 GB  10.0 MB/s  1m40s left
waiting      50%  1.0 GB of 2.0 GB  the connection broke
done        100%  2.0 GB of 2.0 GB
it fits with a context of 4,096: 900 MB of the 1.0 GB that are free; 8,192 would need 1.6 GB
`
		if out.String() != "m\n" || errs.String() != want {
			t.Errorf("wrote %q and\n%swant\n%s", out, errs, want)
		}
	})
	t.Run("a pull says before it begins which context fits, where the registry gives the header", func(t *testing.T) {
		fit := &placement.Fit{Context: 4096, Needs: 9e8, Trained: 4096, Whole: 9e8, Free: 1e9}
		d := &fakeDownloader{download: download, fit: fit, pull: func(context.Context, bool, func(infer.DownloadProgress)) (infer.ModelInfo, error) {
			return infer.ModelInfo{Name: "m", Fit: fit}, nil
		}}
		term, _, errs := terminalOf("")
		if err := Pull(t.Context(), term, d, "org/repo", false); err != nil {
			t.Fatal(err)
		}
		want := `org/repo/m.gguf, 2.0 GB, 500 MB already downloaded; free on the disk: 5.0 GB
it fits with a context of 4,096: 900 MB of the 1.0 GB that are free
note: Q8_0 is chosen
`
		if errs.String() != want {
			t.Errorf("wrote\n%swant\n%s", errs, want)
		}
	})
	t.Run("at a terminal, progress is one line drawn anew", func(t *testing.T) {
		var errs strings.Builder
		bar := &progressBar{w: &errs, redraw: true}
		bar.show(infer.DownloadProgress{Phase: infer.PhaseResolving})
		bar.erase()
		if got := errs.String(); got != "\rlooking it up\x1b[K\r\x1b[K" {
			t.Errorf("first wrote %q", got)
		}
		errs.Reset()
		steps(bar.show)
		bar.end()
		if got := errs.String(); strings.Count(got, "\r") != 4 || strings.Count(got, "\n") != 3 || !strings.HasSuffix(got, "2.0 GB of 2.0 GB\x1b[K\n") {
			t.Errorf("wrote %q", got)
		}
	})
	t.Run("a signal stops the pull and says how it goes on", func(t *testing.T) {
		signals := make(chan os.Signal, 1)
		d := &fakeDownloader{pull: func(ctx context.Context, _ bool, _ func(infer.DownloadProgress)) (infer.ModelInfo, error) {
			signals <- syscall.SIGINT
			<-ctx.Done()
			return infer.ModelInfo{}, ctx.Err()
		}}
		term, _, _ := terminalOf("")
		term.Signals = signals
		if err := Pull(t.Context(), term, d, "org/repo", false); err == nil || err.Error() != "stopped; run the same command again to resume" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a wrong name is wrong usage", func(t *testing.T) {
		d := &fakeDownloader{resolved: &fault.Error{Code: fault.CodeInvalid, Message: "no name"}}
		term, _, _ := terminalOf("")
		var usage *UsageError
		if err := Pull(t.Context(), term, d, "x", false); !errors.As(err, &usage) || usage.Message != "no name" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("force is passed on, and a model that cannot be used is said to be none", func(t *testing.T) {
		d := &fakeDownloader{download: infer.Download{File: "f", Problem: "weights in Q4_K"}, pull: func(_ context.Context, force bool, _ func(infer.DownloadProgress)) (infer.ModelInfo, error) {
			if !force {
				return infer.ModelInfo{}, errors.New("refused")
			}
			return infer.ModelInfo{Name: "m", Error: "has weights in Q4_K"}, nil
		}}
		term, out, errs := terminalOf("")
		if err := Pull(t.Context(), term, d, "org/repo", false); err == nil || errs.String() != "" {
			t.Errorf("without force: %v, %q", err, errs)
		}
		if err := Pull(t.Context(), term, d, "org/repo", true); err != nil || out.String() != "m\n" ||
			!strings.Contains(errs.String(), "note: weights in Q4_K\n") || !strings.Contains(errs.String(), "cannot be used: has weights in Q4_K") {
			t.Errorf("got %v, %q, %q", err, out, errs)
		}
	})
	for seconds, want := range map[float64]string{0.4: "0s left", 59: "59s left", 61: "1m01s left", 3700: "1h01m left", 1e18: "very long left"} {
		t.Run("a time is rounded for people: "+want, func(t *testing.T) {
			if got := remaining(seconds); got != want {
				t.Errorf("%g is shown as %q", seconds, got)
			}
		})
	}
}

func TestPullShowsQuantisationsAndAsksForOne(t *testing.T) {
	choices := []infer.Quantisation{
		{Name: "org/repo:Q1_0", Quant: "Q1_0", Size: 1e9, Problem: "weights in Q1_0\x1b[2J are not supported yet"},
		{Name: "org/repo:Q4_K_M", Quant: "Q4_K_M", Size: 5e9, Fit: &placement.Fit{Context: 8192, Free: 8e9}, On: "CPU", TokensPerSecond: 12.34, Chosen: true},
		{Name: "org/repo:Q8_0", Quant: "Q8_0", Size: 9e9, Fit: &placement.Fit{Context: 1024, Free: 8e9}, On: "CPU"},
		{Name: "org/repo:F16", Quant: "F16", Size: 16e9, Fit: &placement.Fit{Needs: 17e9, Free: 8e9}},
	}
	d := infer.Download{Name: "org/repo:Q4_K_M", Quant: "Q4_K_M", Choices: choices}
	t.Run("a script gets the table and the choice", func(t *testing.T) {
		term, _, errs := terminalOf("Q8_0\n")
		got, err := choose(t.Context(), term, &fakeDownloader{}, d)
		want := `   QUANT   SIZE     CONTEXT                                            RUNS ON  TOK/S
   Q1_0   1.0 GB   cannot be used: weights in Q1_0 are not supported yet
*  Q4_K_M  5.0 GB   8192                                               CPU      about 12.3
   Q8_0    9.0 GB   1024                                               CPU      unknown
   F16     16.0 GB  does not fit: needs 17.0 GB of 8.0 GB
`
		squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
		if err != nil || got.Name != d.Name || squeeze(errs.String()) != squeeze(want) {
			t.Errorf("chose %s, %v, and wrote\n%s", got.Name, err, errs)
		}
	})
	for _, c := range []struct{ name, in, want string }{
		{"a person who presses Enter gets the choice", "\n", "org/repo:Q4_K_M"},
		{"a person who names another gets that, in any case of letters", "q8_0\n", "org/repo:Q8_0"},
		{"a person who mistypes is asked again", "Q9\nQ4_K_M\n", "org/repo:Q4_K_M"},
		{"a person who ends the input gets nothing", "\x04", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			term, _, _ := terminalOf("")
			terminal := pseudoTerminal(t, c.in)
			term.In, term.Err = terminal, terminal
			got, err := choose(t.Context(), term, &fakeDownloader{}, d)
			if (err == nil) != (c.want != "") || err == nil && got.Name != c.want {
				t.Errorf("got %s, %v; want %q", got.Name, err, c.want)
			}
		})
	}
}

func TestShow(t *testing.T) {
	d := infer.ModelDetails{
		ModelInfo: infer.ModelInfo{Name: "m", Path: "/models/m.gguf", Size: 1000, Architecture: "llama", Quant: "Q8_0", Parameters: 900, ContextTrain: 256, License: "MIT", Error: "is\nodd"},
		Types:     []infer.TensorType{{Type: "Q8_0", Tensors: 2, Elements: 800, Bytes: 850}, {Type: "F32", Tensors: 1, Elements: 100, Bytes: 400}},
		Template:  &infer.Template{SHA256: "abc", Bytes: 12},
		Metadata:  []infer.Metadata{{Key: "general.name", Value: "evil\x1b[31m"}, {Key: "empty"}},
	}
	t.Run("the tables hold everything and steer no terminal", func(t *testing.T) {
		var out strings.Builder
		if err := Show(&out, d, false); err != nil {
			t.Fatal(err)
		}
		want := `name m
file /models/m.gguf
size 1.0 kB
cannot be used is odd
architecture llama
parameters 900
quantisation Q8_0
context 256 tokens
license MIT
chat template 12 bytes, SHA-256 abc

TYPE TENSORS WEIGHTS SIZE
Q8_0 2 800 850 B
F32 1 100 400 B

KEY VALUE
general.name evil
empty
`
		if got := squeeze(out.String()); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
	t.Run("a built-in model without a template says so", func(t *testing.T) {
		var out strings.Builder
		if err := Show(&out, infer.ModelDetails{}, false); err != nil || !strings.Contains(squeeze(out.String()), "file built in\n") || !strings.Contains(squeeze(out.String()), "chat template none\n") {
			t.Errorf("got %v\n%s", err, out.String())
		}
	})
	t.Run("JSON gives back the details", func(t *testing.T) {
		var out strings.Builder
		var got infer.ModelDetails
		if err := Show(&out, d, true); err != nil || json.Unmarshal([]byte(out.String()), &got) != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestRemove(t *testing.T) {
	m := infer.ModelInfo{Name: "org/m", Size: 1000, Path: "/models/org/m.gguf"}
	for _, c := range []struct {
		name     string
		terminal bool
		in       string
		sure     bool
		removed  bool
	}{
		{"a script is not asked", false, "", false, true},
		{"a person who says yes is asked once", true, "y\n", false, true},
		{"a person who says no keeps the model", true, "n\n", false, false},
		{"a person who says nothing keeps the model", true, "\n", false, false},
		{"a person who is sure is not asked", true, "", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			term, out, errs := terminalOf("")
			if c.terminal {
				term.In = pseudoTerminal(t, c.in)
			}
			removed := ""
			err := Remove(t.Context(), term, m, c.sure, func(name string) error { removed = name; return nil })
			if (removed == "org/m") != c.removed || (err == nil) != c.removed || c.removed != (out.String() == "removed org/m (1.0 kB)\n") {
				t.Errorf("removed %q, %v, wrote %q", removed, err, out)
			}
			if asked := errs.String() == "remove org/m (1.0 kB, /models/org/m.gguf)? [y/N] "; asked != (c.terminal && !c.sure) {
				t.Errorf("asked %q", errs)
			}
		})
	}
	t.Run("a failure is passed on", func(t *testing.T) {
		term, out, _ := terminalOf("")
		failed := errors.New("failed")
		if err := Remove(t.Context(), term, m, true, func(string) error { return failed }); err != failed || out.String() != "" {
			t.Errorf("got %v, wrote %q", err, out)
		}
	})
}

// pseudoTerminal returns a terminal at which a person types in.
func pseudoTerminal(t *testing.T, in string) *os.File {
	t.Helper()
	person, terminal := openTerminal(t)
	if _, err := person.WriteString(in); err != nil {
		t.Fatal(err)
	}
	return terminal
}

// openTerminal returns both ends of a terminal.
func openTerminal(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	var err error
	person, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return person, terminal
}
