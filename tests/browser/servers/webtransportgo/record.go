package main

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/quic-go/webtransport-go"
)

// recorder prints the events of one session.
type recorder struct{ token string }

func (r recorder) tell(event string, more map[string]any) {
	what := map[string]any{"token": r.token, "event": event}
	for name, value := range more {
		what[name] = value
	}
	tell(what)
}

func record(ctx context.Context, session *webtransport.Session, request *http.Request) {
	r := recorder{request.URL.Query().Get("token")}
	each(ctx, session,
		func(stream *webtransport.Stream) { r.read(stream, "bidirectional") },
		func(stream *webtransport.ReceiveStream) { r.read(stream, "unidirectional") })
	if stream, err := session.OpenStreamSync(ctx); err == nil {
		go r.read(stream, "bidirectional")
		go r.write(stream, "bidirectional")
	}
	if stream, err := session.OpenUniStreamSync(ctx); err == nil {
		go r.write(stream, "unidirectional")
	}
	<-ctx.Done()
	_, err := session.AcceptStream(context.Background())
	var closed *webtransport.SessionError
	if errors.As(err, &closed) {
		r.tell("closed", map[string]any{"code": closed.ErrorCode, "reason": closed.Message})
	} else {
		r.tell("lost", nil)
	}
}

// read records the first data, and the end of the client's side of a stream: by FIN, or by a reset.
func (r recorder) read(stream io.Reader, kind string) {
	one := make([]byte, 1)
	if first, _ := stream.Read(one); first > 0 {
		r.tell("begin", map[string]any{"kind": kind})
	}
	_, err := io.Copy(io.Discard, stream)
	var reset *webtransport.StreamError
	if err == nil {
		r.tell("end", map[string]any{"kind": kind})
	} else if errors.As(err, &reset) {
		r.tell("reset", map[string]any{"kind": kind, "code": reset.ErrorCode})
	}
}

type sender interface {
	io.Writer
	Context() context.Context
}

// write sends hello, and records it when the client stops the stream.
func (r recorder) write(stream sender, kind string) {
	if _, err := stream.Write([]byte("hello")); err != nil {
		return
	}
	<-stream.Context().Done()
	_, err := stream.Write([]byte("more"))
	var stopped *webtransport.StreamError
	if errors.As(err, &stopped) && stopped.Remote {
		r.tell("stopped", map[string]any{"kind": kind, "code": stopped.ErrorCode})
	}
}
