package bench

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/tokmark/tokmark/bench/openai"
	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/workloads"
	"github.com/tokmark/tokmark/workloads/arrival"
)

// preallocated bounds the chunks that a record has room for from the start.
const preallocated = 4096

// session is the sending of one session, by one goroutine.
type session struct {
	*dispatch
	job
	turn int
	// due is when the turn is due, and after carry when one more would be;
	// capWait is how long the turn was kept from being sent by a cap.
	due     record.Time
	capWait time.Duration
	ended   record.Time // the last request's end
	// users, if set, say when the next turn is due, in place of end + think
	// time; shifted is how much later than their gap wanted that is.
	users   *arrival.Users
	shifted time.Duration
}

// carry sends the turns of the session, one after the other. A turn is due when
// the one before has ended and its think time is over; one that fails ends the
// session. The first request has been claimed, and has entered the prefill cap.
func (s *session) carry(ctx context.Context) {
	s.ended = s.clock()
	turns := s.session.Turns
	request := turns[0]
	for {
		rec := s.newRecord()
		more := s.turn+1 < len(turns)
		s.exchange(ctx, rec, s.keep(more))
		s.ended = rec.End
		if more && rec.Outcome == record.OK {
			request = withAnswer(request, rec.Output, turns[s.turn+1])
		}
		if !s.plan.KeepOutput {
			rec.Output = nil
		}
		s.out <- rec
		if u := s.users; u != nil {
			was := s.due.Sub(s.start)
			next := u.Next(was, s.ended.Sub(s.start))
			s.due, s.shifted = s.start+record.Time(next), next-(was+u.Gap())
		} else {
			s.due = s.ended + record.Time(request.Delay)
		}
		if !more || rec.Outcome != record.OK {
			return
		}
		s.turn++
		err := s.ask(s.plan, request)
		wait := sleeper{clock: s.clock, stop: s.stop}
		if s.over(s.due) || !wait.until(s.due) || !s.claim() {
			return
		}
		if err != nil {
			s.unsent(err.Error())
			return
		}
		if !s.enter(ctx) {
			return
		}
	}
}

// keep says what the text of the turn's answer is needed for. more: there is a
// turn after it.
func (s *session) keep(more bool) openai.Keep {
	var keep openai.Keep
	if more || s.plan.KeepOutput || s.plan.Check != nil {
		keep |= openai.KeepOutput
	}
	if s.plan.KeepUncounted {
		keep |= openai.KeepUncounted
	}
	return keep
}

// enter waits until the prefill cap lets the turn through. False: it never did,
// which is recorded unless the run is to stop.
func (s *session) enter(ctx context.Context) (ok bool) {
	if s.capWait, ok = s.enterPrefill(ctx); !ok && !closed(s.stop) && ctx.Err() == nil {
		s.unsent(heldToTheEnd)
	}
	return ok
}

// exchange sends the turn and waits for its answer.
func (s *session) exchange(ctx context.Context, rec *record.Record, keep openai.Keep) {
	id := s.plan.RequestIDPrefix + string(s.phase[0]) + strconv.FormatInt(s.i, 10)
	if len(s.session.Turns) > 1 {
		id += "." + strconv.Itoa(s.turn)
	}
	s.sent.Add(1)
	s.plan.Gauge.Sent.Add(1)
	raise(&s.most, s.plan.Gauge.InFlight.Add(1))
	left := false
	leave := func() {
		if !left {
			left = true
			s.leavePrefill()
		}
	}
	s.x.do(ctx, rec, id, s.body, keep, leave)
	leave()
	if s.plan.Check != nil && rec.Outcome == record.OK {
		ok := len(rec.Output) > 0 && s.plan.Check(rec.Output[0].Text)
		rec.StructureOK = &ok
	}
	s.plan.Gauge.InFlight.Add(-1)
}

// unsent records that the turn could not be sent.
func (s *session) unsent(why string) {
	s.dispatch.unsent.Add(1)
	rec := s.newRecord()
	rec.End = s.clock()
	rec.Fail(record.Dropped, record.Failure{Stage: "build", Message: why})
	s.out <- rec
}

// newRecord begins the record of the turn.
func (s *session) newRecord() *record.Record {
	req := &s.session.Turns[s.turn]
	rec := record.New(s.phase, s.i)
	rec.Due, rec.Session, rec.Turn, rec.Class, rec.CapWait = s.due, s.session.ID, s.turn, req.Class, s.capWait
	rec.Shifted = s.shifted
	rec.Model, rec.Streaming = s.model, s.stream
	if req.InputTokens > 0 {
		rec.AskedInput = record.Count(req.InputTokens)
	}
	if req.OwnTokens > 0 {
		rec.OwnInput = record.Count(req.OwnTokens)
	}
	if req.ExpectedCached > 0 {
		rec.ExpectedCached = record.Count(req.ExpectedCached)
	}
	if req.OutputTokens > 0 {
		rec.AskedOutput = record.Count(req.OutputTokens)
		rec.ExactOutput = asksExactLength(req.Extra) || asksExactLength(s.plan.Body.Extra)
		if rec.Streaming {
			rec.Chunks = make(record.Chunks, 0, min(req.OutputTokens, preallocated))
		}
	}
	return rec
}

// asksExactLength reports whether extra fields make an answer as long as its
// limit.
func asksExactLength(extra map[string]json.RawMessage) bool {
	for _, name := range []string{"min_tokens", "min_new_tokens"} {
		if _, ok := extra[name]; ok {
			return true
		}
	}
	return string(extra["ignore_eos"]) == "true"
}

// withAnswer is the request of a turn with the turns before it and the server's
// answer to them in front.
func withAnswer(before workloads.Request, answer []record.Output, turn workloads.Request) workloads.Request {
	text := ""
	if len(answer) > 0 {
		text = answer[0].Text
	}
	if len(before.Messages) == 0 {
		turn.Prompt = before.Prompt + text + turn.Prompt
		return turn
	}
	history := make([]workloads.Message, 0, len(before.Messages)+1+len(turn.Messages))
	history = append(history, before.Messages...)
	history = append(history, workloads.Message{Role: "assistant", Content: text})
	turn.Messages = append(history, turn.Messages...)
	return turn
}
