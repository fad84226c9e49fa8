package main

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
)

// outgoing is how many messages wait for their stream at the most.
const outgoing = 1 << 20

// player holds the connection, its open streams, and the milliseconds that messages of paced steps waited.
type player struct {
	ctx     context.Context
	conn    *grpc.ClientConn
	streams map[string]*stream
	waits   []float64
}

// stream sends what is put into out, in a goroutine of its own: the core may answer while we send.
type stream struct {
	grpc.ClientStream
	out  chan []byte
	sent chan error
}

func (p *player) play(s *step) error {
	if s.Unary {
		for _, message := range s.Messages {
			var answer []byte
			if err := p.conn.Invoke(p.ctx, s.Method, message, &answer); err != nil {
				return fmt.Errorf("%s: %w", s.Method, err)
			}
		}
		return nil
	}
	stream, err := p.stream(s.Method)
	if err != nil {
		return err
	}
	return p.converse(stream, s)
}

// converse sends what is due, counts an answer, and so on until enough was counted.
func (p *player) converse(stream *stream, s *step) error {
	begun := time.Now()
	counted, next := 0, 0
	for {
		for next < len(s.Messages) && (s.After == nil || s.After[next] <= counted) {
			if s.After != nil {
				p.waited(&begun, next)
			}
			stream.out <- s.Messages[next]
			next++
		}
		if counted >= s.Until {
			break
		}
		var answer []byte
		if err := stream.RecvMsg(&answer); err != nil {
			return fmt.Errorf("%s ended after %d of %d: %w", s.Method, counted, s.Until, err)
		}
		more, err := s.take(stream, answer)
		if err != nil {
			return err
		}
		counted += more
	}
	if s.After != nil {
		p.waited(&begun, next)
	}
	return nil
}

// waited notes how long the message before the next one took until all it asked for was there.
func (p *player) waited(since *time.Time, next int) {
	now := time.Now()
	if next > 0 {
		p.waits = append(p.waits, now.Sub(*since).Seconds()*1000)
	}
	*since = now
}

// take counts the objects of an answer and confirms its releases.
func (s *step) take(stream *stream, answer []byte) (int, error) {
	found, err := scan(answer, s)
	if err != nil {
		return 0, err
	}
	if found.refused != nil {
		return 0, fmt.Errorf("%s: refused: %q", s.Method, found.refused)
	}
	if len(found.releases) > 0 {
		stream.out <- confirmation(found.releases, s.Manager)
	}
	return found.counted, nil
}

// accepts says whether a counted object is of the kind that was waited for.
func (s *step) accepts(object []byte) bool {
	return len(s.Only) == 0 || bytes.Contains(object, s.Only)
}

func (p *player) stream(method string) (*stream, error) {
	if open, ok := p.streams[method]; ok {
		return open, nil
	}
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	call, err := p.conn.NewStream(p.ctx, both, method)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	opened := &stream{call, make(chan []byte, outgoing), make(chan error, 1)}
	go opened.send()
	p.streams[method] = opened
	return opened, nil
}

func (s *stream) send() {
	for message := range s.out {
		if err := s.SendMsg(message); err != nil {
			break // RecvMsg tells why.
		}
	}
	s.sent <- s.CloseSend()
}

// end closes our side of every stream.
func (p *player) end() error {
	for _, open := range p.streams {
		close(open.out)
		if err := <-open.sent; err != nil {
			return err
		}
	}
	return nil
}
