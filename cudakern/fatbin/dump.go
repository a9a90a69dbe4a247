package fatbin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Dump returns what cuobjdump of the CUDA toolkit prints, with the options args, for the module in a file.
func Dump(name string, args ...string) ([]byte, error) {
	file, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	image, err := Decompress(file)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "fatbin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	plain := filepath.Join(dir, "module.fatbin")
	if err := os.WriteFile(plain, image, 0o666); err != nil {
		return nil, err
	}
	output, err := exec.Command("cuobjdump", append(args, plain)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cuobjdump %q: %w\n%s", args, err, output)
	}
	return output, nil
}
