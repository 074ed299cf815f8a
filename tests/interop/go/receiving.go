package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func receiving() []scenario {
	return []scenario{
		{"go-push", push},
		{"go-push-waiting", pushWaiting},
		{"go-push-broadcast", pushBroadcast},
		{"go-push-orderly", pushOrderly},
		{"go-push-by-tag", pushByTag},
		{"go-push-by-sql", pushBySQL},
		{"go-push-by-bad-sql", pushByBadSQL},
		{"go-push-from-last", pushFromLast},
		{"go-push-from-time", pushFromTime},
		{"go-push-in-batches", pushInBatches},
		{"go-push-suspended", pushSuspended},
		{"go-push-unsubscribed", pushUnsubscribed},
		{"go-push-resumes", pushResumes},
		{"go-push-two-members", pushTwoMembers},
		{"go-push-orderly-members", pushOrderlyMembers},
		{"go-push-unknown-topic", pushUnknownTopic},
		{"go-push-many", pushMany},
	}
}

func push(w *world) {
	w.createTopic(2)
	w.fill(0, numbered("a", 5)...)
	w.fill(1, numbered("b", 5)...)
	received := &heard{}
	c := w.startPush(everything, received.listen)
	received.waitFor(10)
	quiet()
	w.put("received", received.all())
	eventually("nothing is behind", func() bool {
		behind, told := c.GetOffsetDiffMap()[w.topic()]
		return told && behind == 0
	})
}

// pushWaiting sends while the consumer's long poll waits at the broker.
func pushWaiting(w *world) {
	w.createTopic(1)
	w.fill(0, "before")
	received := &heard{}
	w.startPush(everything, received.listen)
	received.waitFor(1)
	quiet()
	begun := time.Now()
	w.fill(0, "woken")
	received.waitFor(2)
	w.put("woken", time.Since(begun) < 3*time.Second)
	w.put("received", received.bodies())
}

func pushBroadcast(w *world) {
	w.createTopic(2)
	w.fill(0, numbered("a", 3)...)
	one, other := &heard{}, &heard{}
	w.startPush(everything, one.listen, consumer.WithConsumerModel(consumer.BroadCasting))
	w.startPush(everything, other.listen, consumer.WithConsumerModel(consumer.BroadCasting))
	one.waitFor(3)
	other.waitFor(3)
	w.fill(1, numbered("b", 3)...)
	one.waitFor(6)
	other.waitFor(6)
	quiet()
	w.put("one", one.sortedBodies())
	w.put("other", other.sortedBodies())
}

func pushOrderly(w *world) {
	w.createTopic(2)
	w.fill(0, numbered("a", 10)...)
	w.fill(1, numbered("b", 10)...)
	received := &heard{}
	w.startPush(everything, received.listen, consumer.WithConsumerOrder(true))
	received.waitFor(20)
	byQueue := map[string][]string{}
	for _, body := range received.bodies() {
		byQueue[body[:1]] = append(byQueue[body[:1]], body)
	}
	w.put("a", byQueue["a"])
	w.put("b", byQueue["b"])
}

func sendTagged(w *world) {
	for i, tag := range []string{"red", "green", "blue", "", "red"} {
		message := w.message(0, fmt.Sprint(tag, i)).WithTag(tag)
		message.WithProperty("number", fmt.Sprint(i))
		_, err := w.producer().SendSync(context.Background(), message)
		must(err)
	}
}

func pushByTag(w *world) {
	w.createTopic(1)
	sendTagged(w)
	for name, selector := range map[string]consumer.MessageSelector{
		"typed":   {Type: consumer.TAG, Expression: "red || green"},
		"untyped": {Expression: "blue"}, // the client sends an empty type
	} {
		received := &heard{}
		c := w.newPush(consumer.WithGroupName(w.group() + name))
		must(c.Subscribe(w.topic(), selector, received.listen))
		must(c.Start())
		received.waitFor(1)
		quiet()
		w.put(name, received.sortedBodies())
	}
}

func pushBySQL(w *world) {
	w.createTopic(1)
	sendTagged(w)
	received := &heard{}
	w.startPush(consumer.MessageSelector{Type: consumer.SQL92, Expression: "number BETWEEN 1 AND 3 AND TAGS IS NOT NULL"}, received.listen)
	received.waitFor(2)
	quiet()
	w.put("received", received.sortedBodies())
}

func pushByBadSQL(w *world) {
	w.createTopic(1)
	sendTagged(w)
	received := &heard{}
	w.startPush(consumer.MessageSelector{Type: consumer.SQL92, Expression: "number BETWEEN AND"}, received.listen)
	quiet()
	w.put("received", received.sortedBodies())
}

func pushFromLast(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("old", 3)...)
	quiet() // an Apache broker shows them a little later
	received := &heard{}
	w.startPush(everything, received.listen, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	quiet()
	w.fill(0, "new")
	received.waitForBody("new") // a broker sends a new group to the begin of a young queue
	quiet()
	w.put("received", received.sortedBodies())
}

func pushFromTime(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("old", 3)...)
	time.Sleep(2100 * time.Millisecond) // the client gives the time in seconds
	between := time.Now().UTC()
	time.Sleep(1100 * time.Millisecond)
	w.fill(0, numbered("new", 3)...)
	quiet()
	received := &heard{}
	w.startPush(everything, received.listen,
		consumer.WithConsumeFromWhere(consumer.ConsumeFromTimestamp),
		consumer.WithConsumeTimestamp(between.Format("20060102150405")))
	received.waitForBody("new02")
	quiet()
	w.put("received", received.sortedBodies())
}

func pushInBatches(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("m", 20)...)
	var mutex sync.Mutex
	largest, count := 0, 0
	w.startPush(everything, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mutex.Lock()
		defer mutex.Unlock()
		count += len(messages)
		if len(messages) > largest {
			largest = len(messages)
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumeMessageBatchMaxSize(8), consumer.WithPullBatchSize(16))
	eventually("all came", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return count >= 20
	})
	w.put("largest", largest)
	w.put("count", count)
}

func pushSuspended(w *world) {
	w.createTopic(1)
	w.fill(0, "first")
	received := &heard{}
	c := w.startPush(everything, received.listen)
	received.waitFor(1)
	c.Suspend()
	w.fill(0, "woken") // the poll that waits brings one more; then it stops
	received.waitFor(2)
	quiet()
	w.fill(0, "held back")
	quiet()
	w.put("suspended", received.bodies())
	c.Resume()
	received.waitFor(3)
	w.put("resumed", received.bodies())
}

func pushUnsubscribed(w *world) {
	other := w.topic() + "-other"
	w.createTopic(1)
	w.createTopicNamed(other, 1)
	one, two := &heard{}, &heard{}
	c := w.newPush()
	must(c.Subscribe(w.topic(), everything, one.listen))
	must(c.Subscribe(other, everything, two.listen))
	must(c.Start())
	send := func(topic, body string) {
		message := primitive.NewMessage(topic, []byte(body))
		message.Queue = &primitive.MessageQueue{Topic: topic, BrokerName: brokerName}
		_, err := w.producer().SendSync(context.Background(), message)
		must(err)
	}
	send(w.topic(), "a1")
	send(other, "b1")
	one.waitFor(1)
	two.waitFor(1)
	must(c.Unsubscribe(other))
	c.Suspend()
	c.Resume() // balances at once: the queues of the other topic go
	quiet()
	send(w.topic(), "a2")
	send(other, "b2")
	one.waitFor(2)
	quiet()
	w.put("one", one.bodies())
	w.put("two", len(two.bodies()) <= 2) // a poll that waits may bring one more
}

func pushResumes(w *world) {
	w.createTopic(2)
	w.fill(0, numbered("a", 4)...)
	first := &heard{}
	c := w.startPush(everything, first.listen)
	first.waitFor(4)
	must(c.Shutdown())
	w.fill(1, numbered("b", 4)...)
	second := &heard{}
	w.startPush(everything, second.listen)
	second.waitFor(4)
	quiet()
	w.put("first", first.sortedBodies())
	w.put("second", second.sortedBodies())
}

// pushTwoMembers tells whether anything is lost while a second member joins and the first one leaves.
func pushTwoMembers(w *world) {
	w.createTopic(4)
	one, other := &heard{}, &heard{}
	rounds := newRounds(w)
	first := w.startPush(everything, one.listen)
	rounds.send()
	one.waitFor(8)
	w.startPush(everything, other.listen)
	eventually("each gets half of a round", func() bool {
		ones, others := one.count(), other.count()
		rounds.send()
		within(5*time.Second, func() bool { return one.count()+other.count() >= ones+others+8 })
		return one.count() == ones+4 && other.count() == others+4
	})
	must(first.Shutdown())
	rounds.untilAllGoTo(other)
	w.put("none lost", within(20*time.Second, func() bool { return rounds.missing(one, other) == 0 }))
}

// pushOrderlyMembers: of the queues that the second is to have, this client keeps the locks, until they expire
// a minute later. Those it has when it leaves it unlocks.
func pushOrderlyMembers(w *world) {
	w.createTopic(4)
	one, other := &heard{}, &heard{}
	rounds := newRounds(w)
	orderly := consumer.WithConsumerOrder(true)
	first := w.startPush(everything, one.listen, orderly)
	rounds.send()
	one.waitFor(8)
	w.startPush(everything, other.listen, orderly)
	quiet()
	w.put("given before the first leaves", other.count())
	must(first.Shutdown())
	before := other.count()
	rounds.send()
	other.waitFor(before + 4)
	quiet()
	w.put("given afterwards", other.count()-before)
}

// rounds are messages of which each queue gets two.
type rounds struct {
	producer rocketmq.Producer
	topic    string
	sent     []string
}

func newRounds(w *world) *rounds {
	return &rounds{w.startProducer(producer.WithGroupName("turning-" + w.name)), w.topic(), nil}
}

func (r *rounds) send() {
	for i := 0; i < 8; i++ {
		body := fmt.Sprint(len(r.sent))
		_, err := r.producer.SendSync(context.Background(), primitive.NewMessage(r.topic, []byte(body)))
		must(err)
		r.sent = append(r.sent, body)
	}
}

func (r *rounds) untilAllGoTo(member *heard) {
	eventually("one member has it all", func() bool {
		before := member.count()
		r.send()
		return within(3*time.Second, func() bool { return member.count() >= before+8 })
	})
}

func (r *rounds) missing(members ...*heard) int {
	came := map[string]bool{}
	for _, member := range members {
		for _, body := range member.bodies() {
			came[body] = true
		}
	}
	return len(r.sent) - len(came)
}

func pushUnknownTopic(w *world) {
	c := w.newPush()
	must(c.Subscribe(w.topic(), everything, (&heard{}).listen))
	err := c.Start()
	w.put("refused", err != nil)
}

func pushMany(w *world) {
	w.createTopic(4)
	turning := w.startProducer(producer.WithGroupName("turning-" + w.name))
	sent := []string{}
	for i := 0; i < 100; i++ {
		var messages []*primitive.Message
		for j := 0; j < 10; j++ {
			body := fmt.Sprintf("%03d-%d", i, j)
			sent = append(sent, body)
			messages = append(messages, primitive.NewMessage(w.topic(), []byte(body)))
		}
		_, err := turning.SendSync(context.Background(), messages...)
		must(err)
	}
	received := &heard{}
	w.startPush(everything, received.listen)
	received.waitFor(1000)
	quiet()
	got := received.sortedBodies()
	sort.Strings(sent)
	w.put("each once", fmt.Sprint(got) == fmt.Sprint(sent))
}
