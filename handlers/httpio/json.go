package httpio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"reflect"
	"strconv"
	"strings"

	"m40-llm/infer/fault"
	"m40-llm/infer/readtext"

	"github.com/labstack/echo/v4"
)

// maxDepth is the deepest nesting of arrays and objects in a body.
const maxDepth = 64

// ReadJSON decodes the body, a JSON object, into dst, and leaves absent fields unchanged. Errors
// name the field and the values that it accepts.
func ReadJSON(c echo.Context, dst any) error {
	return readBody(c, func(data []byte) error { return DecodeJSON(data, "", dst) })
}

// ReadStrictJSON is like ReadJSON, but refuses unknown fields. It is for the routes of the pages.
func ReadStrictJSON(c echo.Context, dst any) error {
	return readBody(c, func(data []byte) error { return DecodeStrict(data, "", dst) })
}

// SendsJSON reports whether the body of a form is a JSON object instead, as scripts send
// it.
func SendsJSON(c echo.Context) bool {
	kind, _, _ := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	return kind == echo.MIMEApplicationJSON
}

// DecodeStrict is DecodeJSON that refuses unknown fields.
func DecodeStrict(data []byte, param string, dst any) error {
	return decodePlain(data, param, func(data []byte) error {
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.DisallowUnknownFields()
		return decoder.Decode(dst)
	})
}

// decodePlain decodes data with decode. If that fails because an integer is written as 4.0 or
// 4e0, as languages without an integer type do, it decodes plainNumbers(data) instead.
func decodePlain(data []byte, param string, decode func([]byte) error) error {
	err := decode(data)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if text, number := strings.CutPrefix(wrong.Value, "number "); number && plainNumber(text) != text {
			data = plainNumbers(data)
			err = decode(data)
		}
	}
	if err != nil {
		return explainJSON(data, param, err)
	}
	return nil
}

// plainNumbers returns data, which must be valid JSON, with its whole numbers written without
// decimal point and exponent: 4.0 and 4e0 become 4.
func plainNumbers(data []byte) []byte {
	var plain []byte
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			end := stringEnd(data, i)
			plain = append(plain, data[i:end+1]...)
			i = end
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("0123456789.eE+-", data[end]) >= 0 {
				end++
			}
			plain = append(plain, plainNumber(string(data[i:end]))...)
			i = end - 1
		default:
			plain = append(plain, c)
		}
	}
	return plain
}

// plainNumber returns a whole number without decimal point and exponent. Fractions, and numbers
// too large for a float64 to hold exactly, are returned unchanged.
func plainNumber(text string) string {
	const exact = 1 << 53
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > exact {
		return text
	}
	return strconv.FormatInt(int64(v), 10)
}

func readBody(c echo.Context, decode func(data []byte) error) error {
	data, err := io.ReadAll(c.Request().Body)
	if err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fault.Invalid("", "the body ended before its Content-Length")
		}
		return err
	}
	if data, err = readtext.Clean(data); err != nil {
		return fault.Invalid("", "the body cannot be used: %v", err)
	}
	if err := checkObject(data); err != nil {
		return err
	}
	return decode(data)
}

// checkObject returns an error if data is not a JSON object or is nested too deeply.
func checkObject(data []byte) error {
	if err := CheckDepth(data); err != nil {
		return err
	}
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return fault.Invalid("", "the body must be a JSON object")
	}
	if !json.Valid(data) {
		var v any
		return explainJSON(data, "", json.Unmarshal(data, &v))
	}
	return nil
}

// DecodeJSON decodes data, the value of the field called param (empty: the whole
// body), into dst.
func DecodeJSON(data []byte, param string, dst any) error {
	return decodePlain(data, param, func(data []byte) error { return json.Unmarshal(data, dst) })
}

// explainJSON turns an error of encoding/json into one that names the field by its path and
// says what it accepts.
func explainJSON(data []byte, param string, err error) error {
	var (
		syntax *json.SyntaxError
		typ    *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &syntax):
		field := joinPath(param, pathAt(data, int(syntax.Offset)))
		message := fmt.Sprintf("the body is not valid JSON at byte %d: %v", syntax.Offset, err)
		if field != "" {
			message = fmt.Sprintf("the body is not valid JSON at byte %d, in %s: %v", syntax.Offset, field, err)
		}
		if at := int(syntax.Offset) - 1; at >= 0 && at < len(data) && (data[at] == 'N' || data[at] == 'I') {
			message += "; JSON has finite numbers only"
		}
		return fault.Invalid(field, "%s", message)
	case errors.As(err, &typ):
		field := joinPath(param, pathAt(data, int(typ.Offset)-1))
		want := kindName(typ.Type)
		want = rangeOf(field, typ, want)
		return fault.Invalid(field, "%s must be %s, not %s", field, want, valueName(typ.Value))
	default:
		return fault.Invalid(param, "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
}

// rangeOf returns which numbers a field accepts whose value was wrong, else the description want.
func rangeOf(field string, wrong *json.UnmarshalTypeError, want string) string {
	t := wrong.Type
	if r, ok := Ranges[field[strings.LastIndexByte(field, '.')+1:]]; ok && (t.Kind() == reflect.Int || t.Kind() == reflect.Int64) {
		return r.String()
	}
	if !strings.HasPrefix(wrong.Value, "number") || strings.ContainsAny(wrong.Value, ".E") {
		return want // it is not just too large
	}
	switch t.Kind() {
	case reflect.Int32:
		return Range{Min: math.MinInt32, Max: math.MaxInt32}.String()
	case reflect.Int, reflect.Int64:
		return Range{Min: math.MinInt64, Max: math.MaxInt64}.String()
	}
	return want
}

// valueName describes a value of a body in the words of kindName.
func valueName(value string) string {
	switch value {
	case "string", "number":
		return "a " + value
	case "array", "object":
		return "an " + value
	case "bool":
		return "true or false"
	}
	return Shorten(strings.TrimPrefix(value, "number ")) // one that does not fit, such as 1e999
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

func joinPath(base, rest string) string {
	if base == "" || rest == "" || rest[0] == '[' {
		return base + rest
	}
	return base + "." + rest
}

// CheckDepth returns an error if data, which need not be valid JSON, is nested deeper than
// maxDepth.
func CheckDepth(data []byte) error {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = stringEnd(data, i)
		case '{', '[':
			if depth++; depth > maxDepth {
				field := pathAt(data, i)
				return fault.Invalid(Shorten(field), "the body nests deeper than %d arrays and objects, in %s", maxDepth, Shorten(field))
			}
		case '}', ']':
			depth--
		}
	}
	return nil
}

// pathAt returns the path of the value in which data[:end] ends, such as messages[2].content.
// data need not be valid.
func pathAt(data []byte, end int) string {
	type level struct {
		array  bool
		index  int
		key    string
		inside bool // of the key's value
	}
	var levels []level
	for i := 0; i < min(end, len(data)); i++ {
		top := len(levels) - 1
		switch data[i] {
		case '{':
			levels = append(levels, level{})
		case '[':
			levels = append(levels, level{array: true})
		case '}', ']':
			if top >= 0 {
				levels = levels[:top]
			}
		case ':':
			if top >= 0 {
				levels[top].inside = true
			}
		case ',':
			if top >= 0 {
				levels[top].index++
				levels[top].key, levels[top].inside = "", false
			}
		case '"':
			begin := i
			i = stringEnd(data, i)
			if top >= 0 && !levels[top].array && !levels[top].inside && i < end {
				var key string
				if json.Unmarshal(data[begin:i+1], &key) == nil {
					levels[top].key = Shorten(key)
				}
			}
		}
	}
	path := ""
	for _, l := range levels {
		switch {
		case l.array:
			path += "[" + strconv.Itoa(l.index) + "]"
		case l.inside:
			path = joinPath(path, l.key)
		}
	}
	return path
}

// stringEnd returns the index of the quote that closes the string opened at
// data[begin], or len(data)-1.
func stringEnd(data []byte, begin int) int {
	for i := begin + 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data) - 1
}

// Range is the range of an integer field.
type Range struct{ Min, Max int }

func (r Range) String() string { return fmt.Sprintf("a whole number from %d to %d", r.Min, r.Max) }

func (r Range) Check(param string, value int) error {
	if value < r.Min || value > r.Max {
		return fault.Invalid(param, "%s must be %s, not %d", param, r, value)
	}
	return nil
}

// Ranges are the ranges of integer fields. sample.Params checks the sampling parameters itself.
var Ranges = map[string]Range{
	"best_of":               {Min: 1, Max: MaxAnswers},
	"logprobs":              {Min: 0, Max: MaxLogProbs},
	"max_completion_tokens": {Min: -1, Max: math.MaxInt32},
	"max_output_tokens":     {Min: 1, Max: math.MaxInt32},
	"max_tokens":            {Min: -1, Max: math.MaxInt32},
	"n":                     {Min: 1, Max: MaxAnswers},
	"n_predict":             {Min: -1, Max: math.MaxInt32},
	"n_probs":               {Min: 0, Max: MaxLogProbs},
	"num_predict":           {Min: -1, Max: math.MaxInt32},
	"seed":                  {Min: -1, Max: math.MaxInt64}, // a negative one is random
	"top_logprobs":          {Min: 0, Max: MaxChatLogProbs},
}

const (
	MaxAnswers      = 128 // to one request
	MaxLogProbs     = 100 // alternatives to a token of a text completion
	MaxChatLogProbs = 20  // alternatives to a token of a chat completion
)
