package cli

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	type values struct {
		Name  string
		N     int
		Seed  int64
		X     float64
		On    bool
		Hosts []string
	}
	parse := func(env map[string]string, most int, args ...string) (values, []string, string, error) {
		term, out, _ := terminal("")
		term.Env = func(name string) string { return env[name] }
		f := NewFlags("test", "[MODEL]", "Tests flags.")
		name := f.String("name", "guide", "NAME", "what it is called")
		n := f.Int("max-tokens", -1, "how many")
		seed := f.Int64("seed", -1, "seed")
		x := f.Float("temp", 0.7, "how hot")
		on := f.Bool("on", "whether")
		hosts := f.List("allow-host", "H", "more names")
		rest, err := f.Parse(term, args, most)
		return values{*name, *n, *seed, *x, *on, *hosts}, rest, out(), err
	}
	def := values{Name: "guide", N: -1, Seed: -1, X: 0.7}
	with := func(change func(*values)) values { v := def; change(&v); return v }
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		want values
		rest []string
	}{
		{"without flags all have their defaults", nil, nil, def, nil},
		{"one and two dashes mean the same", nil, []string{"-temp", "0", "--max-tokens=5"}, with(func(v *values) { v.X, v.N = 0, 5 }), nil},
		{"flags may stand between and after the other arguments", nil, []string{"a", "--on", "b", "--seed", "9"}, with(func(v *values) { v.On, v.Seed = true, 9 }), []string{"a", "b"}},
		{"after two dashes nothing is a flag", nil, []string{"a", "--", "--on", "b"}, def, []string{"a", "--on", "b"}},
		{"a list takes commas and repetitions", nil, []string{"--allow-host", "a, b,", "--allow-host", "c"}, with(func(v *values) { v.Hosts = []string{"a", "b", "c"} }), nil},
		{"the environment sets flags", map[string]string{"M40_LLM_MAX_TOKENS": "5", "M40_LLM_ON": "true", "M40_LLM_ALLOW_HOST": "a,b"}, nil,
			with(func(v *values) { v.N, v.On, v.Hosts = 5, true, []string{"a", "b"} }), nil},
		{"the command line wins over the environment", map[string]string{"M40_LLM_NAME": "other"}, []string{"--name", "mine"}, with(func(v *values) { v.Name = "mine" }), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, rest, _, err := parse(c.env, 3, c.args...)
			if err != nil || !reflect.DeepEqual(got, c.want) || !reflect.DeepEqual(rest, c.rest) {
				t.Errorf("got %+v, %q, %v", got, rest, err)
			}
		})
	}
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		want string
	}{
		{"an unknown flag is wrong usage", nil, []string{"--xyzzy", "x"}, "there is no flag --xyzzy; see m40-llm test -h"},
		{"an unknown flag with two letters swapped names the flag that is meant", nil, []string{"--nmae", "x"}, "there is no flag --nmae (did you mean --name?); see"},
		{"an unknown flag that is longer than one names that", nil, []string{"--temperature", "1"}, "there is no flag --temperature (did you mean --temp?); see"},
		{"an unknown flag that is the beginning of one names that, with one dash too", nil, []string{"-max-tok=1"}, "there is no flag --max-tok (did you mean --max-tokens?); see"},
		{"a number that is none is wrong usage", nil, []string{"--temp", "hot"}, `invalid value "hot" for --temp; see m40-llm test -h`},
		{"a flag without its value is wrong usage", nil, []string{"--name"}, "a value is missing after --name"},
		{"an argument too many is wrong usage", nil, []string{"a", "b"}, `"b" is one argument too many`},
		{"a wrong value in the environment names the variable", map[string]string{"M40_LLM_TEMP": "hot"}, nil, `"hot" in the environment variable M40_LLM_TEMP`},
		{"a number that is too large says so", nil, []string{"--max-tokens", "99999999999999999999"}, "value out of range"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, _, err := parse(c.env, 1, c.args...)
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "parse error") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
	t.Run("the help explains each flag with its default", func(t *testing.T) {
		_, _, out, err := parse(nil, 0, "-h")
		if !errors.Is(err, ErrHelp) {
			t.Fatal(err)
		}
		for _, want := range []string{"usage: m40-llm test [flags] [MODEL]", "Tests flags.", "--name NAME", "what it is called (default guide)", "--temp X", "(default 0.7)", "--on ", "--allow-host H"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	})
}

func TestFlags_HelpOfACommandWithoutFlagsNamesNone(t *testing.T) {
	term, out, _ := terminal("")
	if _, err := NewFlags("plain", "", "Does it.").Parse(term, []string{"-h"}, 0); !errors.Is(err, ErrHelp) {
		t.Fatal(err)
	}
	if want := "usage: m40-llm plain\n\nDoes it.\n"; out() != want {
		t.Errorf("got %q, want %q", out(), want)
	}
}

func TestExit(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"nothing to report is 0", nil, 0, ""},
		{"a failure is 1, in one line", errors.New("disk\nfull\x1b[31m"), 1, "m40-llm: disk full\n"},
		{"wrong usage is 2", Usagef("no %s", "way"), 2, "m40-llm: no way\n"},
		{"a server that runs already is 3", ErrRunning, 3, "m40-llm: m40-llm is running there already\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			term, _, errs := terminal("")
			if code := term.Exit(c.err); code != c.code || errs() != c.text {
				t.Errorf("code %d and %q, want %d and %q", code, errs(), c.code, c.text)
			}
		})
	}
}
