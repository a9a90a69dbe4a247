package failure

import (
	"net/http"

	"m40-llm/infer/fault"
)

// row is what clients are told about errors with one code.
type row struct {
	status  int
	title   string // what happened, for people; empty: derived from the status
	text    string // why and what to do, for people; empty: the error's own text
	final   bool   // the same request would fail again
	private bool   // the error's own text is for the log only
}

// table has a row for each code.
var table = map[fault.Code]row{
	fault.CodeInvalid:   {status: http.StatusBadRequest, title: "This was not accepted"},
	fault.CodeContext:   {status: http.StatusBadRequest, title: "This does not fit into the context"},
	fault.CodeTemplate:  {status: http.StatusBadRequest, title: "The model’s chat template refused this chat"},
	fault.CodeNotFound:  {status: http.StatusNotFound, title: "There is no such model"},
	fault.CodeQueueFull: {status: http.StatusTooManyRequests, title: "The queue is full"},
	fault.CodeLoading:   {status: http.StatusServiceUnavailable, title: "The model is still loading"},
	fault.CodeMemory:    {status: http.StatusServiceUnavailable, title: "Not enough memory", final: true},
	fault.CodeClosed:    {status: http.StatusServiceUnavailable, title: "The server is stopping"},
	fault.CodeModelFile: {status: http.StatusInternalServerError, title: "The model file cannot be used", final: true},
	fault.CodeDevice:    {status: http.StatusInternalServerError, title: "The device failed", private: true},
	fault.CodeNotFinite: {status: http.StatusInternalServerError, title: "The model computed nonsense", private: true, final: true},
	fault.CodeGrammar:   {status: http.StatusInternalServerError, title: "The model cannot keep to the form", final: true},
	fault.CodeStopped:   {status: http.StatusForbidden, title: "The answer was stopped", final: true},
	fault.CodeLost:      {status: http.StatusServiceUnavailable, title: "The engine stopped"},
	fault.CodeCrashes:   {status: http.StatusInternalServerError, title: "This makes the engine crash", final: true},
	fault.CodeUpstream:  {status: http.StatusBadGateway, title: "The engine that runs this model failed"},
	fault.CodeInternal:  {status: http.StatusInternalServerError, title: "The answer failed", private: true},

	fault.CodeChatNotFound: {status: http.StatusNotFound, title: "This chat is gone",
		text: "It was deleted, or it was a temporary chat, which is kept until the server stops."},
	fault.CodeNotShared:      {status: http.StatusNotFound, title: "There is nothing under this link"},
	fault.CodeTooManyFollow:  {status: http.StatusServiceUnavailable, title: "Too many readers"},
	fault.CodeNoKeyboard:     {status: http.StatusForbidden, title: "You cannot write here"},
	fault.CodeNoRequests:     {status: http.StatusForbidden, title: "Nobody can ask to write here"},
	fault.CodeTooManyAsk:     {status: http.StatusTooManyRequests, title: "Others are asking already", final: true},
	fault.CodeTooSoon:        {status: http.StatusTooManyRequests, title: "Not so fast", final: true},
	fault.CodeWriterNotFound: {status: http.StatusNotFound, title: "Nobody asks or writes any more"},
	fault.CodeTooManyChats:   {status: http.StatusServiceUnavailable, title: "Too many chats at once"},
	fault.CodeChatsMissing:   {status: http.StatusServiceUnavailable, title: "The file of the chats is gone"},
	fault.CodeChatsLocked:    {status: http.StatusServiceUnavailable, title: "Another program holds the chats"},
	fault.CodeDiskFull: {status: http.StatusInsufficientStorage, title: "The disk is full",
		text: "Nothing was changed. Free some space on the disk of the data folder and try again."},
	fault.CodeAnswerEnded:    {status: http.StatusNotFound, title: "This answer has ended"},
	fault.CodeConflict:       {status: http.StatusConflict},
	fault.CodeNameTaken:      {status: http.StatusConflict, title: "This name is taken"},
	fault.CodePersonNotFound: {status: http.StatusNotFound, title: "This is gone"},
	fault.CodePictureGone:    {status: http.StatusGone, title: "A picture is gone"},
	fault.CodePicturesFull:   {status: http.StatusInsufficientStorage, title: "No room for more pictures", final: true},
	fault.CodePresetBuiltin:  {status: http.StatusConflict, title: "This preset is built in"},
	fault.CodePresetNotFound: {status: http.StatusNotFound, title: "This preset is gone"},
	fault.CodeRegistry:       {status: http.StatusBadGateway, title: "The model cannot be fetched"},

	fault.CodePictureNotFound:     {status: http.StatusNotFound},
	fault.CodeBodyTooLarge:        {status: http.StatusRequestEntityTooLarge},
	fault.CodeDayUsed:             {status: http.StatusTooManyRequests, title: "That is all for today", final: true},
	fault.CodeDenied:              {status: http.StatusForbidden, title: "Only the owner can do this"},
	fault.CodeHostNotAllowed:      {status: http.StatusMisdirectedRequest},
	fault.CodeInvalidCode:         {status: http.StatusUnauthorized},
	fault.CodeInvalidEncoding:     {status: http.StatusBadRequest},
	fault.CodeInvalidKey:          {status: http.StatusUnauthorized},
	fault.CodeInvalidLogin:        {status: http.StatusUnauthorized},
	fault.CodeMethodNotAllowed:    {status: http.StatusMethodNotAllowed},
	fault.CodeMissingKey:          {status: http.StatusUnauthorized},
	fault.CodeNotLoggedIn:         {status: http.StatusUnauthorized, title: "Not logged in"},
	fault.CodeNotSupported:        {status: http.StatusBadRequest, title: "The model cannot do this", final: true},
	fault.CodeOriginNotAllowed:    {status: http.StatusForbidden},
	fault.CodeSessionGone:         {status: http.StatusGone},
	fault.CodeSeveralCredentials:  {status: http.StatusBadRequest},
	fault.CodeTimeout:             {status: http.StatusRequestTimeout},
	fault.CodeTooLargeForNow:      {status: http.StatusTooManyRequests},
	fault.CodeTooManyAttempts:     {status: http.StatusTooManyRequests, final: true},
	fault.CodeTooManyConnections:  {status: http.StatusServiceUnavailable},
	fault.CodeTooManyVisitors:     {status: http.StatusTooManyRequests, title: "Too many visitors"},
	fault.CodeUnknownURL:          {status: http.StatusNotFound},
	fault.CodeUnsupportedEncoding: {status: http.StatusUnsupportedMediaType},
	fault.CodeWebSocketOnly:       {status: http.StatusUpgradeRequired},
	fault.CodeWrongPassphrase:     {status: http.StatusForbidden},
}

// types are OpenAI's names for the kinds of failure; other statuses below 500 are
// invalid_request_error, others above it server_error.
var types = map[int]string{
	http.StatusUnauthorized:       "authentication_error",
	http.StatusForbidden:          "permission_error",
	http.StatusTooManyRequests:    "rate_limit_error",
	http.StatusServiceUnavailable: "unavailable_error",
}

func typeOf(status int) string {
	switch {
	case types[status] != "":
		return types[status]
	case status < http.StatusInternalServerError:
		return "invalid_request_error"
	}
	return "server_error"
}

// RetryAfter is the pause in seconds asked of a client that was turned away with 429 or
// 503, unless its error names another.
const RetryAfter = 5

func retryAfter(status int) int {
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		return RetryAfter
	}
	return 0
}
