// Package fatbin contains the compiled modules of kernels: a tar archive of those of each family, compressed by brotli
// as a whole, because modules for several types of weights have much in common.
package fatbin

import (
	"archive/tar"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"strings"

	"github.com/andybalholm/brotli"
)

//go:embed *.tar.br
var files embed.FS

// Suffix is the end of the name of an archive's file, after the name of the family.
const Suffix = ".tar.br"

// Module is a compiled module.
type Module struct {
	Name  string
	Image []byte // a fatbin
}

// Read returns the image of the module called name. The error is fs.ErrNotExist if the program was built without it.
func Read(name string) ([]byte, error) {
	file, err := archiveOf(name)
	if err != nil {
		return nil, err
	}
	for m, err := range Modules(file) {
		if err != nil || m.Name == name {
			return m.Image, err
		}
	}
	return nil, fs.ErrNotExist
}

// archiveOf returns the archive of a module's family, whose name is the module's, or what is left of that without the type of weights
// after an underscore. Types may have underscores, too.
func archiveOf(module string) ([]byte, error) {
	for family := module; ; {
		file, err := files.ReadFile(family + Suffix)
		end := strings.LastIndexByte(family, '_')
		if err == nil || end < 0 {
			return file, err
		}
		family = family[:end]
	}
}

// Modules yields the modules in the contents of an archive's file, or an error and nothing after it. It decompresses no more than it yields.
func Modules(file []byte) iter.Seq2[Module, error] {
	return func(yield func(Module, error) bool) {
		for r := tar.NewReader(brotli.NewReader(bytes.NewReader(file))); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			var m Module
			if err == nil {
				m.Name, m.Image = header.Name, make([]byte, header.Size)
				_, err = io.ReadFull(r, m.Image)
			}
			if err != nil {
				yield(Module{}, fmt.Errorf("cannot decompress modules of kernels: %w", err))
				return
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

// Pack returns the contents of an archive's file. It takes seconds for a megabyte.
func Pack(modules []Module) ([]byte, error) {
	var file bytes.Buffer
	compressed := brotli.NewWriterOptions(&file, brotli.WriterOptions{Quality: brotli.BestCompression, LGWin: 24})
	archive := tar.NewWriter(compressed)
	for _, m := range modules {
		if err := archive.WriteHeader(&tar.Header{Name: m.Name, Mode: 0o644, Size: int64(len(m.Image))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(m.Image); err != nil {
			return nil, err
		}
	}
	err := errors.Join(archive.Close(), compressed.Close())
	return file.Bytes(), err
}
