package cli

import (
	"flag"
	"fmt"
	"io"
	"strings"
)

// ErrHelp is returned by Flags.Parse after it has printed the help for -h.
var ErrHelp = flag.ErrHelp

// Flags are the flags of one command. Each can also be set by an environment variable,
// M40_LLM_ and its name in capitals, and by a configuration file; the command line takes
// precedence, then the environment.
type Flags struct {
	command string
	args    string // the command's arguments as its help shows them
	about   string
	set     *flag.FlagSet
	order   []described
	sources map[string]string // of the values that are not the default, by the flag's name: "flag", the name of a variable, the path of a file
}

type described struct {
	name, value, about string
}

// NewFlags returns the flags of a command, none yet. args and about are its arguments and
// its description in the help.
func NewFlags(command, args, about string) *Flags {
	set := flag.NewFlagSet(command, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	return &Flags{command: command, args: args, about: about, set: set, sources: map[string]string{}}
}

func (f *Flags) describe(name, value, about string) {
	f.order = append(f.order, described{name, value, about})
}

// String declares a flag with a text as its value, which the help calls value.
func (f *Flags) String(name, def, value, about string) *string {
	f.describe(name, value, about)
	return f.set.String(name, def, "")
}

// Bool declares a flag without a value.
func (f *Flags) Bool(name string, about string) *bool {
	f.describe(name, "", about)
	return f.set.Bool(name, false, "")
}

// Int declares a flag for a whole number.
func (f *Flags) Int(name string, def int, about string) *int {
	f.describe(name, "N", about)
	return f.set.Int(name, def, "")
}

// Int64 declares a flag for a whole number of 64 bits.
func (f *Flags) Int64(name string, def int64, about string) *int64 {
	f.describe(name, "N", about)
	return f.set.Int64(name, def, "")
}

// Float declares a flag for a number.
func (f *Flags) Float(name string, def float64, about string) *float64 {
	f.describe(name, "X", about)
	return f.set.Float64(name, def, "")
}

// List declares a flag that can be repeated, or given several values with commas.
func (f *Flags) List(name, value, about string) *[]string {
	f.describe(name, value, about)
	list := new(list)
	f.set.Var(list, name, "")
	return (*[]string)(list)
}

type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(s string) error {
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*l = append(*l, part)
		}
	}
	return nil
}

// OnLine reports whether the flag was set on the command line.
func (f *Flags) OnLine(name string) bool { return f.sources[name] == onLine }

// onLine is the source of values on the command line.
const onLine = "flag"

// Given reports whether the flag was set, on the command line, in the environment or in the
// configuration file.
func (f *Flags) Given(name string) (given bool) {
	f.set.Visit(func(s *flag.Flag) { given = given || s.Name == name })
	return given
}

// Shared returns, as arguments, the flags that were set and that other declares too.
func (f *Flags) Shared(other *Flags) (args []string) {
	f.set.Visit(func(s *flag.Flag) {
		if other.set.Lookup(s.Name) != nil {
			args = append(args, "--"+s.Name+"="+s.Value.String())
		}
	})
	return args
}

// Parse sets the flags from args, where they may be anywhere, and the others from the
// environment and the configuration file. It returns the arguments that are not flags; more than maxRest are an error.
func (f *Flags) Parse(t *Terminal, args []string, maxRest int) (rest []string, err error) {
	if t.Describe != nil {
		t.Describe(f)
		return nil, ErrHelp
	}
	for len(args) > 0 {
		if err := f.set.Parse(args); err != nil {
			return nil, f.explain(t, err)
		}
		left := f.set.Args()
		if parsed := len(args) - len(left); parsed > 0 && args[parsed-1] == "--" {
			rest = append(rest, left...)
			break
		}
		if len(left) == 0 {
			break
		}
		rest, args = append(rest, left[0]), left[1:]
	}
	if len(rest) > maxRest {
		return nil, Usagef("%q is one argument too many; see m40-llm %s -h", rest[maxRest], f.command)
	}
	f.set.Visit(func(s *flag.Flag) { f.sources[s.Name] = onLine })
	if err := f.readEnv(t); err != nil {
		return nil, err
	}
	return rest, f.readConfig(t)
}

// explain returns the error for the user of an error of package flag. It prints the help if
// that was requested.
func (f *Flags) explain(t *Terminal, err error) error {
	if err == flag.ErrHelp {
		f.printHelp(t.Out)
		return ErrHelp
	}
	message := twoDashes.Replace(strings.TrimSuffix(err.Error(), parseError))
	if name, unknown := strings.CutPrefix(message, noFlag); unknown {
		if name == "model" && strings.Contains(f.args, "MODEL") { // as other commands call it
			message += fmt.Sprintf(": its place is m40-llm %s %s", f.command, f.args)
		} else {
			message += DidYouMean("--", Nearest(name, f.names()))
		}
	}
	return Usagef("%s; see m40-llm %s -h", message, f.command)
}

const noFlag = "there is no flag --"

// names returns the names of the flags in the order of the help.
func (f *Flags) names() (names []string) {
	for _, d := range f.order {
		names = append(names, d.name)
	}
	return names
}

// twoDashes rewrites flags in the messages of package flag as the help shows them.
var twoDashes = strings.NewReplacer(
	"flag provided but not defined: -", noFlag,
	"flag needs an argument: -", "a value is missing after --",
	"for flag -", "for --",
)

// parseError is what package flag appends for a value that is not a number, or neither true
// nor false. It adds nothing to the message before it.
const parseError = ": parse error"

func (f *Flags) readEnv(t *Terminal) error {
	for _, d := range f.order {
		name := EnvName(d.name)
		value := t.Env(name)
		if value == "" || f.Given(d.name) {
			continue
		}
		if err := f.set.Set(d.name, value); err != nil {
			return Usagef("invalid value %q in the environment variable %s%s", value, name, strings.TrimSuffix(": "+err.Error(), parseError))
		}
		f.sources[d.name] = name
	}
	return nil
}

// EnvName returns the environment variable of a flag.
func EnvName(flag string) string {
	return "M40_LLM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Overview prints what the program is and its commands.
func Overview(w io.Writer) {
	fmt.Fprint(w, `usage: m40-llm [COMMAND] [flags]

A playground for large language models. The default command is serve.

commands (m40-llm COMMAND -h explains each):
  serve      serve the playground for the browser, and the API
  run        chat in the terminal, or get one answer
  list       list the models on this machine
  pull       download a model
  show       show the properties and metadata of a model
  rm         delete a downloaded model
  cp         give a model a second name
  ps         show which model a server has loaded, and who uses it
  passphrase set the passphrase with which you log in on other machines
  restore    restore a backup of the chats
  export     write everything of one person into a folder
  bench      measure how fast a model runs on this machine
  perplexity measure how well a model predicts a text
  embed      print the embeddings of texts
  rerank     print the lines that fit a query best
  tokenize   print the token ids of a text
  template   print the prompt that a chat template renders
  completion print a script that completes commands and flags in a shell
  version    print the version of this program

`)
}

func (f *Flags) printHelp(w io.Writer) {
	usage := "usage: m40-llm " + f.command
	if len(f.order) > 0 {
		usage += " [flags]"
	}
	fmt.Fprintf(w, "%s\n\n%s\n", strings.TrimSpace(usage+" "+f.args), f.about)
	if len(f.order) > 0 {
		places := "in the environment"
		if f.set.Lookup("config") != nil {
			places += ", and by its name in config.toml in --data"
		}
		fmt.Fprintf(w, "\nflags (each also as M40_LLM_<FLAG> %s):\n", places)
	}
	for _, d := range f.order {
		head := "--" + d.name
		if len(d.name) == 1 {
			head = "-" + d.name
		}
		if d.value != "" {
			head += " " + d.value
		}
		def := ""
		if v := f.set.Lookup(d.name).DefValue; v != "" && v != "false" {
			def = " (default " + v + ")"
		}
		if len(head) > 22 {
			head += "\n" + strings.Repeat(" ", 24)
		}
		fmt.Fprintf(w, "  %-22s %s%s\n", head, d.about, def)
	}
}
