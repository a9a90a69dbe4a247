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
func Read(name string) (image []byte, err error) {
	file, err := archiveOf(name)
	if err != nil {
		return nil, err
	}
	err = unpack(file, func(member string, r io.Reader) (done bool, err error) {
		if member == name {
			image, err = io.ReadAll(r)
		}
		return member == name, err
	})
	if err == nil && image == nil {
		err = fs.ErrNotExist
	}
	return image, err
}

// archiveOf returns the archive of a module's family, whose name is the module's, or what is left of that without the type of weights
// behind an underscore. Types may have underscores, too.
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

// Unpack returns the modules in the contents of an archive's file.
func Unpack(file []byte) (modules []Module, err error) {
	err = unpack(file, func(name string, r io.Reader) (bool, error) {
		image, err := io.ReadAll(r)
		modules = append(modules, Module{name, image})
		return false, err
	})
	return modules, err
}

// unpack calls f with each module until it is done.
func unpack(file []byte, f func(name string, image io.Reader) (done bool, err error)) error {
	for r := tar.NewReader(brotli.NewReader(bytes.NewReader(file))); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		done := false
		if err == nil {
			done, err = f(header.Name, r)
		}
		if err != nil {
			return fmt.Errorf("cannot decompress modules of kernels: %w", err)
		}
		if done {
			return nil
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
