package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

// gift is the server's content on a stream of its own.
var gift = bytes.Repeat(everyByte(), 400)

func everyByte() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// ending is the last session's close.
type ending struct {
	once sync.Once
	told chan struct{}
	said string
}

func serve(ctx context.Context, o options) error {
	config, err := o.identity()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	h3 := &http3.Server{TLSConfig: config, QUICConfig: quicConfig(), Handler: mux}
	webtransport.ConfigureHTTP3Server(h3)
	server := &webtransport.Server{
		H3:                   h3,
		CheckOrigin:          func(*http.Request) bool { return true },
		ApplicationProtocols: []string{"second"},
	}
	last := &ending{told: make(chan struct{})}
	mux.HandleFunc(probePath, func(w http.ResponseWriter, r *http.Request) {
		session, err := server.Upgrade(w, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, "webtransportgo:", err)
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		answer(session, last)
	})
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(o.host), Port: o.port})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(socket) }()
	fmt.Println("READY", socket.LocalAddr().(*net.UDPAddr).Port)
	select {
	case <-ctx.Done():
		return server.Close()
	case err := <-failed:
		return err
	}
}

// answer runs a session, from its start to its end.
func answer(session *webtransport.Session, last *ending) {
	go func() {
		for {
			data, err := session.ReceiveDatagram(session.Context())
			if err != nil {
				return
			}
			session.SendDatagram(data)
		}
	}()
	go func() {
		for {
			stream, err := session.AcceptUniStream(session.Context())
			if err != nil {
				return
			}
			go repeat(session, stream)
		}
	}()
	for {
		stream, err := session.AcceptStream(context.Background())
		if err != nil {
			var closed *webtransport.SessionError
			if errors.As(err, &closed) && closed.Remote {
				last.once.Do(func() {
					last.said = fmt.Sprint(closed.ErrorCode, " ", closed.Message)
					close(last.told)
				})
			}
			return
		}
		go func() {
			if err := obey(session, stream, last); err != nil && session.Context().Err() == nil {
				fmt.Fprintln(os.Stderr, "webtransportgo:", err)
			}
		}()
	}
}

func repeat(session *webtransport.Session, stream *webtransport.ReceiveStream) error {
	content, err := io.ReadAll(stream)
	if err != nil {
		return err
	}
	return say(session, content)
}

// say sends content on a unidirectional stream.
func say(session *webtransport.Session, content []byte) error {
	stream, err := session.OpenUniStreamSync(session.Context())
	if err != nil {
		return err
	}
	if _, err := stream.Write(content); err != nil {
		return err
	}
	return stream.Close()
}

func obey(session *webtransport.Session, stream *webtransport.Stream, last *ending) error {
	reader := bufio.NewReader(stream)
	line, err := reader.ReadString('\n')
	if err != nil {
		return err
	}
	order, argument, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	number, reason, _ := strings.Cut(argument, " ")
	code, _ := strconv.ParseUint(number, 10, 32)
	switch order {
	case "ECHO":
		if _, err := io.Copy(stream, reader); err != nil {
			return err
		}
	case "OPEN":
		if err := open(session, stream); err != nil {
			return err
		}
	case "CLOSE":
		return session.CloseWithError(webtransport.SessionErrorCode(code), reason)
	case "RESET":
		stream.CancelWrite(webtransport.StreamErrorCode(code))
		return nil
	case "STOP":
		stream.CancelRead(webtransport.StreamErrorCode(code))
		return nil
	case "HEAR":
		return hear(session, stream)
	case "LAST":
		<-last.told
		if _, err := io.WriteString(stream, last.said); err != nil {
			return err
		}
	case "PROTOCOL":
		if _, err := io.WriteString(stream, session.SessionState().ApplicationProtocol); err != nil {
			return err
		}
	default:
		return fmt.Errorf("no such order: %q", line)
	}
	return stream.Close()
}

func open(session *webtransport.Session, stream *webtransport.Stream) error {
	own, err := session.OpenStreamSync(session.Context())
	if err != nil {
		return err
	}
	go func() {
		own.Write(gift)
		own.Close()
	}()
	back, err := io.ReadAll(own)
	if err != nil {
		return err
	}
	said := "different"
	if bytes.Equal(back, gift) {
		said = "same"
	}
	_, err = io.WriteString(stream, said)
	return err
}

func hear(session *webtransport.Session, stream *webtransport.Stream) error {
	if _, err := io.WriteString(stream, "ready"); err != nil {
		return err
	}
	var reset *webtransport.StreamError
	if _, err := io.ReadAll(stream); !errors.As(err, &reset) {
		return fmt.Errorf("a reset was to come: %w", err)
	}
	return say(session, []byte(fmt.Sprint(uint32(reset.ErrorCode))))
}
