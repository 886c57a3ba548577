package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/quic-go/webtransport-go"
)

// complain logs an unexpected error; errors caused by the peer or by the session's close are
// expected.
func complain(err error) {
	var stream *webtransport.StreamError
	var session *webtransport.SessionError
	if err != nil && !errors.As(err, &stream) && !errors.As(err, &session) && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "webtransportgo:", err)
	}
}

// each calls a function for every stream of the client, in a goroutine of its own.
func each(ctx context.Context, session *webtransport.Session, bidirectional func(*webtransport.Stream), unidirectional func(*webtransport.ReceiveStream)) {
	go func() {
		for {
			stream, err := session.AcceptStream(ctx)
			if err != nil {
				return
			}
			go bidirectional(stream)
		}
	}()
	go func() {
		for {
			stream, err := session.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			go unidirectional(stream)
		}
	}()
}

func echoStream(stream *webtransport.Stream) {
	if _, err := io.Copy(stream, stream); err != nil {
		complain(err)
		return
	}
	complain(stream.Close())
}

func echo(ctx context.Context, session *webtransport.Session, _ *http.Request) {
	each(ctx, session, echoStream, func(stream *webtransport.ReceiveStream) {
		answer, err := session.OpenUniStreamSync(ctx)
		if err != nil {
			complain(err)
			return
		}
		if _, err := io.Copy(answer, stream); err != nil {
			complain(err)
			return
		}
		complain(answer.Close())
	})
	datagrams(ctx, session, func(datagram []byte) []byte { return datagram })
}

func datagrams(ctx context.Context, session *webtransport.Session, answer func([]byte) []byte) {
	go func() {
		for {
			datagram, err := session.ReceiveDatagram(ctx)
			if err != nil {
				return
			}
			complain(session.SendDatagram(answer(datagram)))
		}
	}()
}

func opens(ctx context.Context, session *webtransport.Session, _ *http.Request) {
	stream, err := session.OpenStreamSync(ctx)
	if err != nil {
		complain(err)
		return
	}
 // An empty write, which still sends the header.
	if _, err := stream.Write(nil); err != nil {
		complain(err)
		return
	}
	go echoStream(stream)
}

func lengths(ctx context.Context, session *webtransport.Session, _ *http.Request) {
	datagrams(ctx, session, func(datagram []byte) []byte { return []byte(strconv.Itoa(len(datagram))) })
}

func headers(ctx context.Context, session *webtransport.Session, request *http.Request) {
	said := map[string]string{
		":method": request.Method, ":protocol": request.Proto, ":authority": request.Host,
		":scheme": "https", ":path": request.URL.RequestURI(),
	}
	for name := range request.Header {
		said[strings.ToLower(name)] = request.Header.Get(name)
	}
	send(ctx, session, func(stream *webtransport.SendStream) error { return json.NewEncoder(stream).Encode(said) })
}

// send writes a unidirectional stream to its end.
func send(ctx context.Context, session *webtransport.Session, write func(*webtransport.SendStream) error) {
	stream, err := session.OpenUniStreamSync(ctx)
	if err == nil {
		err = write(stream)
	}
	if err == nil {
		err = stream.Close()
	}
	complain(err)
}

func closes(ctx context.Context, session *webtransport.Session, request *http.Request) {
	stream, err := session.AcceptUniStream(ctx)
	if err != nil {
		return
	}
	if _, err := io.ReadFull(stream, make([]byte, 1)); err != nil {
		return
	}
	code := webtransport.SessionErrorCode(number(request, "code"))
	complain(session.CloseWithError(code, request.URL.Query().Get("reason")))
}

func stops(ctx context.Context, session *webtransport.Session, request *http.Request) {
	code := webtransport.StreamErrorCode(number(request, "code"))
	one := make([]byte, 1)
	each(ctx, session, func(stream *webtransport.Stream) {
		if _, err := stream.Read(one); err == nil {
			stream.CancelRead(code)
			stream.CancelWrite(code)
		}
	}, func(stream *webtransport.ReceiveStream) {
		if _, err := stream.Read(one); err == nil {
			stream.CancelRead(code)
		}
	})
}

func resets(ctx context.Context, session *webtransport.Session, request *http.Request) {
	stream, err := session.OpenUniStreamSync(ctx)
	if err == nil {
		_, err = stream.Write([]byte("hello"))
	}
	if err != nil {
		complain(err)
		return
	}
	stream.CancelWrite(webtransport.StreamErrorCode(number(request, "code")))
}
