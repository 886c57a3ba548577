package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// serve runs until ctx ends.
func serve(ctx context.Context, o options, log io.Writer) error {
	pair, err := o.identity()
	if err != nil {
		return err
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{o.protocol()},
		KeyLogWriter: log,
		MinVersion:   tls.VersionTLS13,
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(o.host), Port: o.port})
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket}
	if o.testCase == "retry" {
		transport.VerifySourceAddress = func(net.Addr) bool { return true }
	}
	defer transport.Close()
	listener, err := transport.ListenEarly(config, o.quicConfig())
	if err != nil {
		return err
	}
	defer listener.Close()
	port := socket.LocalAddr().(*net.UDPAddr).Port
	web := &http3.Server{Handler: site(o.www)}
	if o.testCase == "web-altsvc" {
		if err := serveTCP(o.host, port, config, web.Handler); err != nil {
			return err
		}
	}
	fmt.Println("READY", port)
	for {
		connection, err := listener.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		switch o.protocol() {
		case "h3":
			go web.ServeQUICConn(connection)
		case probe:
			go answerProbes(connection)
		default:
			go answerFiles(connection, o.www)
		}
	}
}

// answerFiles serves HTTP/0.9: a line with the method and path, then the file.
func answerFiles(connection *quic.Conn, www string) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			if err := answerFile(stream, www); err != nil {
				fmt.Fprintln(os.Stderr, "quicgo:", err)
				stream.CancelWrite(1)
			}
		}()
	}
}

func answerFile(stream *quic.Stream, www string) error {
	line, err := bufio.NewReader(stream).ReadString('\n')
	if err != nil && err != io.EOF {
		return err
	}
	method, path, found := strings.Cut(strings.TrimSpace(line), " ")
	if !found || method != http.MethodGet {
		return fmt.Errorf("not a request: %q", line)
	}
	file, err := os.Open(filepath.Join(www, filepath.Clean("/"+path)))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := io.Copy(stream, file); err != nil {
		return err
	}
	return stream.Close()
}

// answerProbes executes each stream's command (tests/interop/peers/probe.py) and echoes datagrams.
func answerProbes(connection *quic.Conn) {
	go func() {
		for {
			data, err := connection.ReceiveDatagram(context.Background())
			if err != nil {
				return
			}
			connection.SendDatagram(data)
		}
	}()
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go answerProbe(connection, stream)
	}
}

func answerProbe(connection *quic.Conn, stream *quic.Stream) {
	stream.SetReadDeadline(time.Now().Add(20 * time.Second))
	reader := bufio.NewReader(stream)
	order, err := reader.ReadString(' ')
	if err != nil {
		return
	}
	if order == "ECHO " {
		io.Copy(stream, reader)
		stream.Close()
		return
	}
 // The line ends with a line feed or with the stream.
	argument, _ := reader.ReadString('\n')
	var code uint64
	if _, err := fmt.Sscan(argument, &code); err != nil {
		return
	}
	switch order {
	case "RESET ":
		stream.CancelWrite(quic.StreamErrorCode(code))
	case "STOP ":
		stream.CancelRead(quic.StreamErrorCode(code))
	case "CLOSE ":
		connection.CloseWithError(quic.ApplicationErrorCode(code), "as asked")
	}
}
