package markdown

import (
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// delimited parses what is between equal delimiters, as CommonMark does but next to Chinese, Japanese and Korean
// characters. Those have no spaces between words, so that punctuation next to a delimiter says nothing of where the text
// begins and ends: in **“你好”**世界 it ends before 世.
type delimited struct {
	char byte
	most int // characters of a delimiter; 0: any number
	node func(consumes int) ast.Node
}

var (
	emphasis      = delimited{char: '*', node: func(consumes int) ast.Node { return ast.NewEmphasis(consumes) }}
	strikethrough = delimited{char: '~', most: 2, node: func(int) ast.Node { return extast.NewStrikethrough() }}
)

// Trigger implements parser.InlineParser.
func (d delimited) Trigger() []byte { return []byte{d.char} }

// Parse implements parser.InlineParser.
func (d delimited) Parse(_ ast.Node, block text.Reader, context parser.Context) ast.Node {
	before := block.PrecendingCharacter()
	line, segment := block.PeekLine()
	delimiter := parser.ScanDelimiter(line, before, 1, d)
	if delimiter == nil || d.most > 0 && (delimiter.OriginalLength > d.most || before == rune(d.char)) {
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

// flanks reports whether a delimiter between two characters belongs to what is on the side of inner.
func flanks(outer, inner rune) bool {
	punctuation := util.IsPunctRune(inner) && !isEastAsian(inner)
	return !util.IsSpaceRune(inner) && (!punctuation || util.IsSpaceRune(outer) || util.IsPunctRune(outer) || isEastAsian(outer))
}

// isEastAsian reports whether r is a Chinese, Japanese or Korean letter or their punctuation.
func isEastAsian(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo) ||
		'\u3000' <= r && r <= '\u303f' && r != '\u3000' || '\u30fb' <= r && r <= '\u30fc' || '\uff01' <= r && r <= '\uffee'
}

// IsDelimiter implements parser.DelimiterProcessor.
func (d delimited) IsDelimiter(b byte) bool { return b == d.char }

// CanOpenCloser implements parser.DelimiterProcessor.
func (d delimited) CanOpenCloser(opener, closer *parser.Delimiter) bool {
	return opener.Char == closer.Char
}

// OnMatch implements parser.DelimiterProcessor.
func (d delimited) OnMatch(consumes int) ast.Node { return d.node(consumes) }
