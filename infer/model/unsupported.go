package model

import (
	"errors"
	"fmt"
	"strings"
)

// UnsupportedError is the error for an architecture that is not supported.
type UnsupportedError struct {
	Architecture string
	Nearest      string // the supported one with the most similar name; empty: none is similar
}

func (e *UnsupportedError) Error() string {
	nearest := ""
	if e.Nearest != "" {
		nearest = fmt.Sprintf("; the nearest that is supported is %q", e.Nearest)
	}
	return fmt.Sprintf("architecture %.80q is not supported%s; docs/models.md lists those that are", e.Architecture, nearest)
}

// Companion is the architecture of files (mmproj) with which the model next to them reads pictures.
const Companion = "clip"

var errCompanion = errors.New("this file is not a model: the model next to it reads pictures with it; choose that model")

// CheckArchitecture returns nil if name is a supported value of general.architecture. Its error is an *UnsupportedError, but for
// Companion.
func CheckArchitecture(name string) error {
	if name == Companion {
		return errCompanion
	}
	if _, ok := architectures[nameOf(name)]; ok {
		return nil
	}
	return &UnsupportedError{Architecture: name, Nearest: nearest(name)}
}

// nearest returns the supported architecture whose name begins most like name: with three letters in common or more, and of several
// that whose length differs least, then the last by name.
func nearest(name string) (found string) {
	const least = 3
	most, difference := least-1, 0
	for _, candidate := range Architectures() {
		common := commonPrefix(plain(name), plain(candidate))
		d := max(len(plain(name))-len(plain(candidate)), len(plain(candidate))-len(plain(name)))
		if common >= least && (common > most || common == most && d <= difference) {
			found, most, difference = candidate, common, d
		}
	}
	return found
}

// plain returns a name in lower case without hyphens and underscores.
func plain(name string) string {
	return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
}

func commonPrefix(a, b string) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
