package markdown

import (
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// stars parses emphasis by asterisks, as CommonMark does but beside Chinese, Japanese and Korean characters. Those have no
// spaces between words, so that punctuation beside the asterisks says nothing of where emphasis begins and ends:
// in **“你好”**世界 it ends before 世.
type stars struct{}

func (stars) Trigger() []byte { return []byte{'*'} }

func (stars) Parse(_ ast.Node, block text.Reader, context parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, segment := block.PeekLine()
	delimiter := parser.ScanDelimiter(line, before, 1, starDelimiters{})
	if delimiter == nil {
		return nil
	}
	after := ' '
	if rest := line[delimiter.OriginalLength:]; len(rest) > 0 {
		after, _ = utf8.DecodeRune(rest)
	}
	if isEastAsian(before) || isEastAsian(after) {
		delimiter.CanOpen, delimiter.CanClose = flanks(before, after), flanks(after, before)
	}
	delimiter.Segment = segment.WithStop(segment.Start + delimiter.OriginalLength)
	block.Advance(delimiter.OriginalLength)
	context.PushDelimiter(delimiter)
	return delimiter
}

// flanks reports whether asterisks between two characters belong to what is on the side of inner.
func flanks(outer, inner rune) bool {
	punctuation := util.IsPunctRune(inner) && !isEastAsian(inner)
	return !util.IsSpaceRune(inner) && (!punctuation || util.IsSpaceRune(outer) || util.IsPunctRune(outer) || isEastAsian(outer))
}

// isEastAsian reports whether r is a Chinese, Japanese or Korean letter or their punctuation.
func isEastAsian(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo) ||
		'\u3000' <= r && r <= '\u303f' && r != '\u3000' || '\u30fb' <= r && r <= '\u30fc' || '\uff01' <= r && r <= '\uffee'
}

// starDelimiters makes emphasis of asterisks.
type starDelimiters struct{}

func (starDelimiters) IsDelimiter(b byte) bool { return b == '*' }
func (starDelimiters) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	return opener.Char == closer.Char
}
func (starDelimiters) OnMatch(consumes int) ast.Node { return ast.NewEmphasis(consumes) }
