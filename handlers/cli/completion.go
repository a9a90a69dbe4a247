package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Shells are the shells for which Completion prints a script.
var Shells = []string{"bash", "zsh", "fish"}

// Completion prints a script that completes commands, flags and the values of flags in a shell.
func Completion(w io.Writer, shell string, commands map[string]*Flags) error {
	names := slices.Sorted(maps.Keys(commands))
	switch shell {
	case "bash", "zsh":
		return completeBash(w, shell, names, commands)
	case "fish":
		return completeFish(w, names, commands)
	}
	return Usagef("there is no completion for %q; there is one for %s", shell, strings.Join(Shells, ", "))
}

// choices returns the values that a flag takes, if its help lists them: auto|cpu.
func (d described) choices() []string {
	if d.value == "" || strings.ToLower(d.value) != d.value || !strings.Contains(d.value, "|") {
		return nil
	}
	return strings.Split(d.value, "|")
}

// completeBash prints a script for bash, which zsh runs through its emulation.
func completeBash(w io.Writer, shell string, names []string, commands map[string]*Flags) error {
	var b strings.Builder
	if shell == "zsh" {
		b.WriteString("#compdef m40-llm\nautoload -U +X bashcompinit && bashcompinit\n")
	}
	b.WriteString("_m40_llm() {\n  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" command=\"${COMP_WORDS[1]}\" list=\"\"\n")
	b.WriteString("  case \"$command\" in -*) command=serve ;; esac\n  case \"$command $before\" in\n")
	for _, name := range names {
		for _, d := range commands[name].order {
			if choices := d.choices(); choices != nil {
				fmt.Fprintf(&b, "  \"%s --%s\") COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", name, d.name, strings.Join(choices, " "))
			}
		}
	}
	b.WriteString("  esac\n  case \"$command\" in\n")
	for _, name := range names {
		fmt.Fprintf(&b, "  %s) list=\"%s\" ;;\n", name, strings.Join(dashed(commands[name]), " "))
	}
	b.WriteString("  esac\n")
	fmt.Fprintf(&b, "  if [ \"$COMP_CWORD\" -eq 1 ]; then list=\"$list %s\"; fi\n", strings.Join(names, " "))
	b.WriteString("  case \"$command\" in run|show|rm|cp) if [ \"$COMP_CWORD\" -eq 2 ]; then list=\"$list $(m40-llm list --names 2>/dev/null)\"; fi ;; esac\n")
	b.WriteString("  COMPREPLY=($(compgen -W \"$list\" -- \"$word\"))\n}\ncomplete -o default -F _m40_llm m40-llm\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// dashed returns the flags of a command as they are typed.
func dashed(f *Flags) (list []string) {
	for _, d := range f.order {
		if len(d.name) == 1 {
			list = append(list, "-"+d.name)
		} else {
			list = append(list, "--"+d.name)
		}
	}
	return list
}

func completeFish(w io.Writer, names []string, commands map[string]*Flags) error {
	var b strings.Builder
	fmt.Fprintf(&b, "complete -c m40-llm -n __fish_use_subcommand -f -a %s\n", fishQuote(strings.Join(names, " ")))
	b.WriteString("complete -c m40-llm -n '__fish_seen_subcommand_from run show rm cp' -a '(m40-llm list --names 2>/dev/null)'\n")
	for _, name := range names {
		for _, d := range commands[name].order {
			fmt.Fprintf(&b, "complete -c m40-llm -n %s ", fishQuote("__fish_seen_subcommand_from "+name))
			if len(d.name) == 1 {
				fmt.Fprintf(&b, "-o %s", d.name)
			} else {
				fmt.Fprintf(&b, "-l %s", d.name)
			}
			if d.value != "" {
				b.WriteString(" -r")
			}
			if choices := d.choices(); choices != nil {
				fmt.Fprintf(&b, " -f -a %s", fishQuote(strings.Join(choices, " ")))
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuote(d.about))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
