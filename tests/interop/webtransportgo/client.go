package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/webtransport-go"
)

var (
	big     = bytes.Repeat(everyByte(), 4096)
	offered = []string{"first", "second"}
 // Below and above the first code that the mapping to HTTP/3's codes skips.
	codes = []webtransport.StreamErrorCode{7, 300}
)

// dial opens a session. It returns the response even if no session is opened.
type dial func(ctx context.Context, path string, protocols ...string) (*webtransport.Session, *http.Response, error)

var cases = map[string]func(context.Context, dial) error{
	"wt-echo":      echo,
	"wt-streams":   streams,
	"wt-datagrams": datagrams,
	"wt-close":     serverCloses,
	"wt-closed":    clientCloses,
	"wt-codes":     streamCodes,
	"wt-refusal":   refusal,
	"wt-protocol":  protocol,
}

func play(ctx context.Context, o options, host string) error {
	config, err := o.trust()
	if err != nil {
		return err
	}
	connect := func(ctx context.Context, path string, protocols ...string) (*webtransport.Session, *http.Response, error) {
  // Not by Transport.Dial, whose connections close with their session, before its close is sent.
		connection, err := quic.DialAddr(ctx, host, config, quicConfig())
		if err != nil {
			return nil, nil, err
		}
		transport := webtransport.Transport{ApplicationProtocols: protocols}
		client, err := transport.NewClientConn(connection)
		if err != nil {
			return nil, nil, err
		}
		response, session, err := client.Dial(ctx, "https://"+host+path, nil)
		return session, response, err
	}
	work, found := cases[os.Getenv("TESTCASE")]
	if !found {
		return fmt.Errorf("no such case: %s", os.Getenv("TESTCASE"))
	}
	return work(ctx, connect)
}

func echo(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath)
	if err != nil {
		return err
	}
	defer session.CloseWithError(0, "")
	if err := checkEcho(ctx, session, big); err != nil {
		return err
	}
	results := make(chan error)
	for number := range 20 {
		go func() { results <- checkEcho(ctx, session, bytes.Repeat([]byte{byte(number)}, 50_000)) }()
	}
	for range 20 {
		err = errors.Join(err, <-results)
	}
	return err
}

func checkEcho(ctx context.Context, session *webtransport.Session, content []byte) error {
	back, err := told(ctx, session, append([]byte("ECHO\n"), content...))
	if err != nil {
		return err
	}
	if !bytes.Equal(back, content) {
		return fmt.Errorf("%d bytes came back changed, as %d", len(content), len(back))
	}
	return nil
}

func streams(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath)
	if err != nil {
		return err
	}
	defer session.CloseWithError(0, "")
	if err := say(session, gift); err != nil {
		return err
	}
	back, err := session.AcceptUniStream(ctx)
	if err != nil {
		return err
	}
	if content, err := io.ReadAll(back); err != nil || !bytes.Equal(content, gift) {
		return fmt.Errorf("the unidirectional stream: %d bytes, %w", len(content), err)
	}
	stream, err := order(ctx, session, []byte("OPEN\n"), true)
	if err != nil {
		return err
	}
	theirs, err := session.AcceptStream(ctx)
	if err != nil {
		return err
	}
	if _, err := io.Copy(theirs, theirs); err != nil {
		return err
	}
	if err := theirs.Close(); err != nil {
		return err
	}
	return says(stream, "same")
}

func datagrams(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath)
	if err != nil {
		return err
	}
	defer session.CloseWithError(0, "")
	for number := range 100 {
		sent := make([]byte, 1000)
		binary.BigEndian.PutUint32(sent, uint32(number))
		if err := session.SendDatagram(sent); err != nil {
			return err
		}
		if back, err := session.ReceiveDatagram(ctx); err != nil || !bytes.Equal(back, sent) {
			return fmt.Errorf("datagram %d: %w", number, err)
		}
	}
	return nil
}

func serverCloses(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath)
	if err != nil {
		return err
	}
	if _, err := order(ctx, session, []byte("CLOSE 4321 as asked\n"), true); err != nil {
		return err
	}
	_, err = session.AcceptStream(ctx)
	var closed *webtransport.SessionError
	if !errors.As(err, &closed) || !closed.Remote || closed.ErrorCode != 4321 || closed.Message != "as asked" {
		return fmt.Errorf("the close: %w", err)
	}
	return nil
}

func clientCloses(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath)
	if err != nil {
		return err
	}
 // Once the server has sent data, it has a session that can be closed.
	if err := checkEcho(ctx, session, []byte("x")); err != nil {
		return err
	}
	if err := session.CloseWithError(1234, "enough of it"); err != nil {
		return err
	}
	if session, _, err = connect(ctx, probePath); err != nil {
		return err
	}
	defer session.CloseWithError(0, "")
	stream, err := order(ctx, session, []byte("LAST\n"), true)
	if err != nil {
		return err
	}
	return says(stream, "1234 enough of it")
}

func streamCodes(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath)
	if err != nil {
		return err
	}
	defer session.CloseWithError(0, "")
	for _, code := range codes {
		var found *webtransport.StreamError
		stream, err := order(ctx, session, fmt.Appendf(nil, "RESET %d\n", code), true)
		if err != nil {
			return err
		}
		if _, err := io.ReadAll(stream); !errors.As(err, &found) || found.ErrorCode != code {
			return fmt.Errorf("the reset with %d: %w", code, err)
		}
		if err := heard(ctx, session, code); err != nil {
			return err
		}
		if stream, err = order(ctx, session, fmt.Appendf(nil, "STOP %d\n", code), false); err != nil {
			return err
		}
		<-stream.Context().Done()
		if _, err := stream.Write([]byte("x")); !errors.As(err, &found) || found.ErrorCode != code {
			return fmt.Errorf("the stop with %d: %w", code, err)
		}
	}
	return nil
}

// heard resets a stream, and checks the code that the server then reports.
func heard(ctx context.Context, session *webtransport.Session, code webtransport.StreamErrorCode) error {
	stream, err := order(ctx, session, []byte("HEAR\n"), false)
	if err != nil {
		return err
	}
	ready := make([]byte, 5)
	if _, err := io.ReadFull(stream, ready); err != nil {
		return err
	}
	stream.CancelWrite(code)
	answer, err := session.AcceptUniStream(ctx)
	if err != nil {
		return err
	}
	return says(answer, fmt.Sprint(uint32(code)))
}

func refusal(ctx context.Context, connect dial) error {
	_, response, err := connect(ctx, "/nothing")
	if err == nil {
		return errors.New("there is a session where none was to be")
	}
	if response == nil || response.StatusCode != http.StatusNotFound {
		return fmt.Errorf("refused otherwise than with 404: %w", err)
	}
	return nil
}

func protocol(ctx context.Context, connect dial) error {
	session, _, err := connect(ctx, probePath, offered...)
	if err != nil {
		return err
	}
	defer session.CloseWithError(0, "")
	if chosen := session.SessionState().ApplicationProtocol; chosen != "second" {
		return fmt.Errorf("the protocol: %q", chosen)
	}
	stream, err := order(ctx, session, []byte("PROTOCOL\n"), true)
	if err != nil {
		return err
	}
	return says(stream, "second")
}

func order(ctx context.Context, session *webtransport.Session, line []byte, end bool) (*webtransport.Stream, error) {
	stream, err := session.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	if !end {
		_, err = stream.Write(line)
		return stream, err
	}
 // In parallel with the reader: an echo begins before all data has been sent.
	go func() {
		stream.Write(line)
		stream.Close()
	}()
	return stream, nil
}

func told(ctx context.Context, session *webtransport.Session, line []byte) ([]byte, error) {
	stream, err := order(ctx, session, line, true)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(stream)
}

func says(stream io.Reader, wanted string) error {
	found, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	if string(found) != wanted {
		return fmt.Errorf("the server says %q, not %q", found, wanted)
	}
	return nil
}
