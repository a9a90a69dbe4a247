// Command m40-llm is a browser playground for large language models on old and small
// hardware, with its own inference core in the same binary.
package main

import (
	"os"

	"m40-llm/handlers/commands"
)

func main() { os.Exit(commands.Main()) }
