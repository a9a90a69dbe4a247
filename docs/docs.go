// Package docs holds the documents of this folder inside the program, which shows them as its help.
package docs

import "embed"

// Files has the documents by their names, such as models.md. README.md is their table of contents. Pictures are left out:
// they show the page that the reader has open.
//
//go:embed *.md
var Files embed.FS
