package fatbin

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Dump returns what cuobjdump of the CUDA toolkit prints, with the options args, for the image of a module.
func Dump(image []byte, args ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "fatbin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "module.fatbin")
	if err := os.WriteFile(name, image, 0o666); err != nil {
		return nil, err
	}
	output, err := exec.Command("cuobjdump", append(args, name)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("cuobjdump %q: %w\n%s", args, err, output)
	}
	return output, nil
}
