package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// configured parses args with a configuration file that contains text.
func configured(t *testing.T, text string, env map[string]string, args ...string) (serve *Flags, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, configName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := func(command string) *Flags {
		f := NewFlags(command, "", "")
		f.String("config", "", "FILE", "")
		f.String("data", dir, "DIR", "")
		f.String("device", "auto", "auto|cpu", "")
		f.Int("threads", 0, "")
		if command == "serve" {
			f.Bool("lan", "")
			f.List("allow-host", "H", "")
			f.String("api-key", "", "K", "")
		} else {
			f.Float("temp", 0.5, "")
		}
		return f
	}
	serve = flags("serve")
	term := &Terminal{Env: func(name string) string { return env[name] }, Commands: func() map[string]*Flags {
		return map[string]*Flags{"serve": flags("serve"), "run": flags("run")}
	}}
	_, err = serve.Parse(term, args, 0)
	return serve, err
}

func TestConfigSetsFlags(t *testing.T) {
	const text = `
threads = 3
device = "cpu"
temp = 0.9 # a flag of another command
api-key = "very secret"
[serve]
lan = true
allow-host = ["a.example", "b.example"]
threads = 4
[run]
threads = 5
`
	value := func(f *Flags, name string) string { return f.set.Lookup(name).Value.String() }
	f, err := configured(t, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"threads": "4", "device": "cpu", "lan": "true", "allow-host": "a.example,b.example"} {
		if got := value(f, name); got != want {
			t.Errorf("--%s is %q, want %q", name, got, want)
		}
	}
	if f.OnLine("threads") || !f.Given("threads") {
		t.Error("a flag of the file counts as one of the command line, or as not given")
	}
	lines := f.Effective()
	line := strings.Join(lines, "\n")
	if len(lines) < 6 || !strings.HasPrefix(lines[len(lines)-1], "defaults: ") {
		t.Errorf("the configuration is printed as %d lines: %q", len(lines), lines)
	}
	for _, want := range []string{"threads=4 (", "config.toml)", "api-key=(set)", `config=""`} {
		if !strings.Contains(line, want) {
			t.Errorf("the configuration is printed as %q, without %q", line, want)
		}
	}
	if strings.Contains(line, "secret") {
		t.Errorf("the configuration is printed as %q, with the key", line)
	}
	f, err = configured(t, text, map[string]string{"M40_LLM_THREADS": "6", "M40_LLM_DEVICE": "auto"}, "--threads", "7")
	if err != nil || value(f, "threads") != "7" || value(f, "device") != "auto" {
		t.Errorf("the command line and the environment do not come first: %s, %v", f.Effective(), err)
	}
	if !slices.Contains(f.Effective(), "device=auto (M40_LLM_DEVICE)") || !f.OnLine("threads") {
		t.Errorf("the configuration is printed as %q", f.Effective())
	}
}

func TestConfigErrorsSayWhereAndWhy(t *testing.T) {
	for _, c := range []struct{ name, text, err string }{
		{"a misspelt key", "thread = 3", "no command has a flag --thread (did you mean threads?)"},
		{"a key of another command", "[serve]\ntemp = 1", "[serve] has no flag --temp"},
		{"an unknown table", "[serv]\nlan = true", "[serv] is not a command (did you mean serve?)"},
		{"a wrong value", "threads = \"many\"", `threads has the invalid value "many"`},
		{"a value of a wrong kind", "threads = 1979-05-27", "neither a text nor a number"},
		{"a list in a list", "allow-host = [[\"a\"]]", "a list in a list"},
		{"a key twice", "threads = 1\nthreads = 2", "line 2"},
		{"text that is not TOML", "threads 3", "line 1"},
		{"a very long file", strings.Repeat("#", maxConfig+1), "it has more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := configured(t, c.text, nil)
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), configName) {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, err := configured(t, "", nil, "--config", "/nowhere/c.toml"); err == nil || !strings.Contains(err.Error(), "/nowhere/c.toml cannot be used") {
		t.Errorf("a named file that does not exist: %v", err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { // a reader of the pipe finds it empty, and does not wait
		defer close(closed)
		if file, err := os.OpenFile(pipe, os.O_WRONLY, 0); err == nil {
			file.Close()
		}
	}()
	defer func() {
		if file, err := os.OpenFile(pipe, os.O_RDWR, 0); err == nil { // ends the opening above
			<-closed
			file.Close()
		}
	}()
	for _, path := range []string{pipe, "/dev/zero", filepath.Dir(pipe)} {
		if _, err := configured(t, "", nil, "--config", path); err == nil || !strings.Contains(err.Error(), path+" cannot be used: it is not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// FuzzConfig checks that no configuration file makes parsing panic or give values of no flag.
func FuzzConfig(f *testing.F) {
	f.Add([]byte("threads = 3\n[serve]\nlan = true\nallow-host = [\"a\"]"))
	f.Add([]byte("a.b = 1\n[[serve]]\nx = {y = [1, [2]]}"))
	path := filepath.Join(f.TempDir(), configName)
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		keys, tables, err := parseConfig(path)
		if err != nil && (keys != nil || tables != nil) {
			t.Errorf("got %v, %v and %v", keys, tables, err)
		}
	})
}
