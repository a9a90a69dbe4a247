package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"m40-llm/infer/readtext"
)

// configName is the name of the configuration file in the folder --data.
const configName = "config.toml"

// maxConfig bounds the configuration file, in bytes.
const maxConfig = 1 << 20

// configPath returns the path of the configuration file. required says that it was named, and must
// exist.
func (f *Flags) configPath(t *Terminal) (path string, required bool) {
	if file := f.set.Lookup("config"); file != nil && file.Value.String() != "" {
		return file.Value.String(), true
	}
	if data := f.set.Lookup("data"); data != nil && data.Value.String() != "" {
		return filepath.Join(data.Value.String(), configName), false
	}
	if home := t.Env("HOME"); home != "" {
		return filepath.Join(home, ".m40-llm", configName), false
	}
	return "", false
}

// readConfig sets the flags that were set neither on the command line nor in the environment from
// the configuration file: from its table for this command, or else from the keys before the tables.
func (f *Flags) readConfig(t *Terminal) error {
	path, required := f.configPath(t)
	if path == "" || f.set.Lookup("config") == nil {
		return nil
	}
	keys, tables, err := parseConfig(path)
	if errors.Is(err, fs.ErrNotExist) && !required {
		return nil
	}
	if err == nil {
		err = f.checkConfig(t, keys, tables)
	}
	if err == nil {
		err = f.setFrom(path, tables[f.command])
	}
	if err == nil {
		err = f.setFrom(path, keys)
	}
	if err != nil {
		return Usagef("the configuration file %s cannot be used: %v", path, err)
	}
	return nil
}

// parseConfig returns the values of a configuration file by the name of their flag: those before
// the tables, and those in the table of each command.
func parseConfig(path string) (keys map[string][]string, tables map[string]map[string][]string, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular(): // opening a named pipe would wait for a writer
		return nil, nil, errors.New("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxConfig {
		return nil, nil, fmt.Errorf("it has more than %d bytes", maxConfig)
	}
	if data, err = readtext.Clean(data); err != nil {
		return nil, nil, err
	}
	var content map[string]any
	if err := toml.Unmarshal(data, &content); err != nil {
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, _ := at.Position()
			return nil, nil, fmt.Errorf("line %d: %w", row, err)
		}
		return nil, nil, err
	}
	keys, tables = map[string][]string{}, map[string]map[string][]string{}
	for key, value := range content {
		table, isTable := value.(map[string]any)
		if !isTable {
			if keys[key], err = configValues(key, value); err != nil {
				return nil, nil, err
			}
			continue
		}
		tables[key] = map[string][]string{}
		for name, value := range table {
			if tables[key][name], err = configValues(name, value); err != nil {
				return nil, nil, fmt.Errorf("[%s]: %w", key, err)
			}
		}
	}
	return keys, tables, nil
}

// configValues returns the value of a key as a flag takes it; an array gives several.
func configValues(key string, value any) ([]string, error) {
	switch value := value.(type) {
	case string, bool, int64, float64:
		return []string{fmt.Sprint(value)}, nil
	case []any:
		var list []string
		for _, v := range value {
			if _, nested := v.([]any); nested {
				return nil, fmt.Errorf("%s has a list in a list", key)
			}
			one, err := configValues(key, v)
			if err != nil {
				return nil, err
			}
			list = append(list, one[0])
		}
		return list, nil
	}
	return nil, fmt.Errorf("%s is neither a text nor a number, true, false or a list of them", key)
}

// checkConfig returns an error for keys and tables that mean nothing to any command.
func (f *Flags) checkConfig(t *Terminal, keys map[string][]string, tables map[string]map[string][]string) error {
	commands := map[string]*Flags{f.command: f}
	if t.Commands != nil {
		commands = t.Commands()
	}
	var every []string
	for _, command := range commands {
		every = append(every, command.Names()...)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(every, key) {
			return unknownKey(key, every, "no command has a flag --"+key)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		command := commands[name]
		if command == nil {
			return unknownKey(name, slices.Collect(maps.Keys(commands)), fmt.Sprintf("[%s] is not a command", name))
		}
		for _, key := range slices.Sorted(maps.Keys(tables[name])) {
			if !slices.Contains(command.Names(), key) {
				return unknownKey(key, command.Names(), fmt.Sprintf("[%s] has no flag --%s", name, key))
			}
		}
	}
	return nil
}

// unknownKey returns an error with the names that are near key.
func unknownKey(key string, names []string, what string) error {
	slices.Sort(names)
	if near := Nearest(key, slices.Compact(names)); len(near) > 0 {
		what += " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return errors.New(what)
}

// setFrom sets the flags that are not set from the values of a configuration file.
func (f *Flags) setFrom(path string, values map[string][]string) error {
	for _, d := range f.order {
		list, ok := values[d.name]
		if !ok || f.Given(d.name) || d.name == "config" {
			continue
		}
		for _, value := range list {
			if err := f.set.Set(d.name, value); err != nil {
				return fmt.Errorf("%s has the invalid value %q%s", d.name, value, strings.TrimSuffix(": "+err.Error(), parseError))
			}
		}
		f.sources[d.name] = path
	}
	return nil
}

// Names returns the names of the flags.
func (f *Flags) Names() (names []string) {
	for _, d := range f.order {
		names = append(names, d.name)
	}
	return names
}

// secretFlags are the flags whose values are not printed.
var secretFlags = map[string]bool{"api-key": true}

// configWidth is the length of the lines of Effective, in bytes.
const configWidth = 110

// Effective returns the values of all flags for people: a line for each that is not the default, with where it
// comes from, and then the others in as few lines as they take. The values of secrets are not in it.
func (f *Flags) Effective() []string {
	var set, defaults []string
	for _, d := range f.order {
		value := f.set.Lookup(d.name).Value.String()
		if secretFlags[d.name] && value != "" {
			value = "(set)"
		}
		if value == "" || strings.ContainsAny(value, " ,;=\"") {
			value = fmt.Sprintf("%q", value)
		}
		part := Line(d.name + "=" + value)
		if source := f.sources[d.name]; source != "" {
			set = append(set, part+" ("+Line(source)+")")
		} else {
			defaults = append(defaults, part)
		}
	}
	line := "defaults:"
	for _, part := range defaults {
		if len(line)+1+len(part) > configWidth {
			set, line = append(set, line), " "
		}
		line += " " + part
	}
	return append(set, line)
}
