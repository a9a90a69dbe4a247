package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"m40-llm/cudakern/fatbin"
)

// families are the compiled modules of each archive.
type families map[string][]fatbin.Module

// readFamilies returns the modules in the archives of dir.
func readFamilies(dir string) (families, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+fatbin.Suffix))
	if err != nil {
		return nil, err
	}
	found := families{}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		family := strings.TrimSuffix(filepath.Base(name), fatbin.Suffix)
		for m, err := range fatbin.Modules(file) {
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found[family] = append(found[family], m)
		}
	}
	return found, nil
}

// familiesOf returns the archives that modules should have, in the order of modules.
func familiesOf(modules []module, images map[string][]byte) families {
	wanted := families{}
	for _, m := range modules {
		wanted[m.family] = append(wanted[m.family], fatbin.Module{Name: m.name, Image: images[m.name]})
	}
	return wanted
}

// imagesOf returns the images of all modules by their names.
func imagesOf(all families) map[string][]byte {
	images := map[string][]byte{}
	for _, modules := range all {
		for _, m := range modules {
			images[m.Name] = m.Image
		}
	}
	return images
}

// writeFamilies turns the archives of dir, which has those of old, into wanted.
func writeFamilies(dir string, old, wanted families) error {
	path := func(family string) string { return filepath.Join(dir, family+fatbin.Suffix) }
	for family := range old {
		if wanted[family] == nil {
			if err := os.Remove(path(family)); err != nil {
				return err
			}
		}
	}
	changed := slices.DeleteFunc(slices.Sorted(maps.Keys(wanted)), func(family string) bool {
		return slices.EqualFunc(wanted[family], old[family], isSame)
	})
	errs := make([]error, len(changed))
	inParallel(len(changed), func(i int) {
		file, err := fatbin.Pack(wanted[changed[i]])
		if err == nil {
			err = os.WriteFile(path(changed[i]), file, 0o666)
		}
		errs[i] = err
	})
	return errors.Join(errs...)
}

func isSame(a, b fatbin.Module) bool { return a.Name == b.Name && bytes.Equal(a.Image, b.Image) }
