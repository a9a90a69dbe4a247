// Package fatbin contains the compiled modules of kernels, compressed by brotli.
package fatbin

import (
	"bytes"
	"embed"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
)

//go:embed *.br
var files embed.FS

// Suffix is the end of the name of a module's file, after the name of the module.
const Suffix = ".fatbin.br"

// Read returns the module called name, decompressed. The error is fs.ErrNotExist if the program was built without it.
func Read(name string) ([]byte, error) {
	file, err := files.ReadFile(name + Suffix)
	if err != nil {
		return nil, err
	}
	return Decompress(file)
}

// Decompress returns the fatbin in the contents of a file.
func Decompress(file []byte) ([]byte, error) {
	image, err := io.ReadAll(brotli.NewReader(bytes.NewReader(file)))
	if err != nil {
		return nil, fmt.Errorf("cannot decompress a module of kernels: %w", err)
	}
	return image, nil
}

// Compress returns the contents of the file for a fatbin. It takes seconds for a megabyte.
func Compress(image []byte) ([]byte, error) {
	var file bytes.Buffer
	w := brotli.NewWriterOptions(&file, brotli.WriterOptions{Quality: 11, LGWin: 24})
	if _, err := w.Write(image); err != nil {
		return nil, err
	}
	err := w.Close()
	return file.Bytes(), err
}
