package fault

// Code says which kind of error an Error is. Programs depend on the values.
type Code string

// Codes of engines.
const (
	CodeInvalid      Code = "invalid_request"         // a field of the request is wrong; Param names it
	CodeContext      Code = "context_length_exceeded" // the prompt does not fit into the context; PromptTokens and ContextLength are set
	CodeNotFound     Code = "model_not_found"
	CodeModelFile    Code = "model_file" // the file is corrupt or not supported
	CodeMemory       Code = "out_of_memory"
	CodeTemplate     Code = "template" // the chat template failed or refused the conversation
	CodeQueueFull    Code = "queue_full"
	CodeLoading      Code = "loading"
	CodeClosed       Code = "closed"         // the engine is shutting down
	CodeDevice       Code = "device"         // the device failed
	CodeNotFinite    Code = "not_finite"     // the model computed NaN or infinity
	CodeGrammar      Code = "grammar"        // the model has no token that the grammar allows next, or matching the grammar takes too long
	CodeStopped      Code = "stopped"        // somebody other than the client stopped the answer; set by the server
	CodeLost         Code = "engine_lost"    // the engine's process ended during the answer; the same request may succeed
	CodeCrashes      Code = "crashes_engine" // the engine's process ended every time it got this input; it is not retried
	CodeUpstream     Code = "upstream"       // the other engine that runs the model failed, or cannot be reached
	CodeNotSupported Code = "not_supported"  // the model cannot do this: one that writes text computes no embeddings, and the other way round
	CodeInternal     Code = "internal"
)

// Codes of the server.
const (
	CodeAnswerEnded         Code = "answer_ended"
	CodeBodyTooLarge        Code = "body_too_large"
	CodeChatNotFound        Code = "chat_not_found"
	CodeChatsLocked         Code = "chats_locked"
	CodeChatsMissing        Code = "chats_missing"
	CodeConflict            Code = "conflict"
	CodeDayUsed             Code = "daily_limit"
	CodeDenied              Code = "not_allowed"
	CodeDiskFull            Code = "disk_full"
	CodeHostNotAllowed      Code = "host_not_allowed"
	CodeInvalidCode         Code = "invalid_code"
	CodeInvalidEncoding     Code = "invalid_encoding"
	CodeInvalidKey          Code = "invalid_api_key"
	CodeInvalidLogin        Code = "invalid_login"
	CodeMethodNotAllowed    Code = "method_not_allowed"
	CodeMissingKey          Code = "missing_api_key"
	CodeNameTaken           Code = "name_taken"
	CodeNoKeyboard          Code = "no_keyboard"
	CodeNoRequests          Code = "no_requests"
	CodeNotLoggedIn         Code = "not_logged_in"
	CodeNotShared           Code = "not_shared"
	CodeOriginNotAllowed    Code = "origin_not_allowed"
	CodePersonNotFound      Code = "person_not_found"
	CodePictureGone         Code = "picture_gone"
	CodePictureNotFound     Code = "picture_not_found"
	CodePicturesFull        Code = "pictures_full"
	CodePresetBuiltin       Code = "preset_builtin"
	CodePresetNotFound      Code = "preset_not_found"
	CodeRegistry            Code = "registry"
	CodeSessionGone         Code = "session_gone"
	CodeSeveralCredentials  Code = "several_credentials"
	CodeTimeout             Code = "timeout"
	CodeTooLargeForNow      Code = "too_large_for_now"
	CodeTooManyAsk          Code = "too_many_requests_to_write"
	CodeTooManyAttempts     Code = "too_many_attempts"
	CodeTooManyChats        Code = "too_many_chats"
	CodeTooManyConnections  Code = "too_many_connections"
	CodeTooManyFollow       Code = "too_many_followers"
	CodeTooManyVisitors     Code = "too_many_visitors"
	CodeTooSoon             Code = "too_soon"
	CodeUnknownURL          Code = "unknown_url"
	CodeUnsupportedEncoding Code = "unsupported_encoding"
	CodeWebSocketOnly       Code = "websocket_only"
	CodeWrongPassphrase     Code = "wrong_passphrase"
	CodeWriterNotFound      Code = "writer_not_found"
)
