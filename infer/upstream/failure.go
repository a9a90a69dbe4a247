package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"m40-llm/infer"
	"m40-llm/infer/client"
)

// failure is a request that a server could not be asked, or that it refused.
type failure struct {
	err    *infer.Error
	why    string // err without what to do
	server string
	status int           // of the response that refused the request; 0: there was none
	again  bool          // the same request may succeed, there or at another server
	broken bool          // the server is to blame: the breaker counts it
	gone   bool          // nobody listens there, or the connection broke
	breach bool          // the server does not keep to its protocol
	after  time.Duration // for which the server asked before the request is sent again
}

func (f *failure) Error() string { return f.err.Error() }

// maxSaid bounds what a person is shown of a server's words, in bytes.
const maxSaid = 300

// said returns a server's words for an error: one line of at most maxSaid bytes, quoted.
func said(text string) string {
	var line strings.Builder
	space := false
	for _, r := range strings.ToValidUTF8(text, "\ufffd") {
		if unicode.IsSpace(r) || unicode.IsControl(r) || !unicode.IsPrint(r) {
			space = line.Len() > 0
			continue
		}
		if space {
			line.WriteByte(' ')
			space = false
		}
		if line.Len()+utf8.RuneLen(r) > maxSaid {
			line.WriteString("…")
			break
		}
		line.WriteRune(r)
	}
	return "“" + line.String() + "”"
}

// lost returns the failure of a connection.
func (s *server) lost(err error) *failure {
	f := &failure{server: s.address, again: true, broken: true, gone: true}
	if errors.Is(err, client.ErrSilent) {
		f.gone, f.again = false, false
		return f.because(infer.CodeUpstream, askAgain, "%s sent nothing for too long, and the request to it was ended", s.address)
	}
	return f.because(infer.CodeUpstream, askAgain, "the connection to %s failed: %s", s.address, reason(err))
}

// askAgain is what a person can do if a server failed.
const askAgain = "ask again, or choose another model"

// midAnswer returns the error of a failure that ended an answer after its first token.
func (f *failure) midAnswer() *infer.Error {
	if f.err.Code != infer.CodeUpstream {
		return f.err
	}
	return infer.Errorf(f.err.Code, "%s; what was written is kept: ask again, or continue from there", f.why)
}

// because sets what failed, why, and what to do, and returns f.
func (f *failure) because(code infer.ErrorCode, todo, format string, args ...any) *failure {
	f.why = fmt.Sprintf(format, args...)
	f.err = infer.Errorf(code, "%s; %s", f.why, todo)
	return f
}

// reason returns why a connection failed, without the address, which the caller says.
func reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns):
		return "its name is not known"
	case errors.As(err, &op) && op.Op == "dial":
		return said(op.Err.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it ended too early"
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing came in time"
	}
	return said(err.Error())
}

// breach returns the failure of a server that does not keep to its protocol.
func (s *server) breach(format string, args ...any) *failure {
	f := &failure{server: s.address, again: true, broken: true, breach: true}
	return f.because(infer.CodeUpstream, "its log may say why, choose another model meanwhile", "%s %s", s.address, fmt.Sprintf(format, args...))
}

// refused returns the failure for a response whose status is not 200.
func (s *server) refused(response *http.Response) *failure {
	const limit = 64 << 10
	text, _ := io.ReadAll(io.LimitReader(response.Body, limit)) // what came of it is shown
	message, code := errorText(response.Header.Get("Content-Type"), text)
	f := s.refusal(response.StatusCode, message, code)
	f.after = retryAfter(response.Header)
	return f
}

// refusal returns the failure for a status that is not 200, with the server's message and code.
func (s *server) refusal(status int, message, code string) *failure {
	f := &failure{server: s.address, status: status}
	switch {
	case status >= 300 && status < 400:
		f.because(infer.CodeUpstream, "give --upstream the address itself", "%s leads to another address, which is not followed", s.address)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		f.because(infer.CodeUpstream, "see --upstream-keys", "%s did not accept the key of this server: %s", s.address, said(message))
	case code == "context_length_exceeded" || code == "exceed_context_size_error" || strings.Contains(message, "maximum context length"):
		f.because(infer.CodeContext, "shorten the prompt", "%s: %s", s.address, said(message))
	case status == http.StatusNotFound:
		f.again = true
		f.because(infer.CodeNotFound, "choose another model", "%s does not know this: %s", s.address, said(message))
	case status == http.StatusTooManyRequests:
		f.again = true
		f.because(infer.CodeQueueFull, "ask again in a moment", "%s has too much to do: %s", s.address, said(message))
	case status == http.StatusNotImplemented || code == string(infer.CodeNotSupported):
		f.because(infer.CodeNotSupported, "choose another model", "%s cannot do this: %s", s.address, said(message))
	case status >= 400 && status < 500:
		f.because(infer.CodeInvalid, "change it, or choose another model", "%s refused the request (%d): %s", s.address, status, said(message))
	default:
		f.again, f.broken = true, true
		f.because(infer.CodeUpstream, askAgain, "%s failed (%d): %s", s.address, status, said(message))
	}
	return f
}

// errorText returns the message and the code of an error in OpenAI's form, or in one of those that engines
// have instead; of other bodies the text.
func errorText(contentType string, text []byte) (message, code string) {
	var body struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(text, &body) != nil {
		if kind, _, _ := mime.ParseMediaType(contentType); kind == "text/html" {
			return "a web page", ""
		}
		return string(text), ""
	}
	var inner struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
		Type    string          `json:"type"`
	}
	if json.Unmarshal(body.Error, &inner) == nil && inner.Message != "" {
		if json.Unmarshal(inner.Code, &code) != nil || code == "" {
			code = inner.Type
		}
		return inner.Message, code
	}
	if json.Unmarshal(body.Error, &message) == nil && message != "" {
		return message, ""
	}
	if body.Message != "" {
		return body.Message, ""
	}
	if json.Unmarshal(body.Detail, &message) == nil && message != "" {
		return message, ""
	}
	return string(text), ""
}

// retryAfter returns for how long a response asks to wait; 0: it does not.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > 0 && seconds < 1e6 {
		return time.Duration(seconds * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// passed are the codes of another m40-llm's errors that say something about the request, or about its model.
var passed = []infer.ErrorCode{
	infer.CodeInvalid, infer.CodeContext, infer.CodeTemplate, infer.CodeNotFound, infer.CodeMemory, infer.CodeNotFinite,
	infer.CodeGrammar, infer.CodeQueueFull, infer.CodeStopped, infer.CodeCrashes, infer.CodeModelFile, infer.CodeNotSupported,
}

// blamed are those that say something about the server. Other codes are those of its rules for clients.
var blamed = []infer.ErrorCode{infer.CodeLoading, infer.CodeClosed, infer.CodeDevice, infer.CodeLost, infer.CodeUpstream, infer.CodeInternal}

// failure returns an error of the client as a *failure, and those of a context as they are.
func (s *server) failure(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if errors.Is(err, client.ErrTooLong) {
		return s.breach("sent a response of too many bytes")
	}
	known, ok := errors.AsType[*infer.Error](err)
	if !ok {
		return s.lost(err)
	}
	e := *known
	f := &failure{server: s.address, err: &e}
	switch {
	case slices.Contains(passed, e.Code):
		f.again = e.Code == infer.CodeQueueFull || e.Code == infer.CodeNotFound
		e.Param = said(e.Param)
		e.Param = e.Param[len("“") : len(e.Param)-len("”")]
		e.Message = s.address + ": " + said(e.Message)
		f.why = e.Message
	case slices.Contains(blamed, e.Code):
		f.again, f.broken = true, true
		f.because(infer.CodeUpstream, askAgain, "%s failed: %s", s.address, said(e.Message))
	default:
		f.because(infer.CodeUpstream, "choose another model", "%s refused the request: %s", s.address, said(e.Message))
	}
	return f
}
