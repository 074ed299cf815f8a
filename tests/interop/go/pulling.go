package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func pulling() []scenario {
	return []scenario{
		{"go-poll", poll},
		{"go-poll-batches", pollBatches},
		{"go-poll-retries", pollRetries},
		{"go-pull", pull},
		{"go-pull-from", pullFrom},
		{"go-pull-by-tag", pullByTag},
		{"go-pull-by-sql", pullBySQL},
		{"go-pull-beyond", pullBeyond},
		{"go-pull-offsets", pullOffsets},
	}
}

func pollAll(c rocketmq.PullConsumer, count int, result consumer.ConsumeResult) (bodies []string, largest int) {
	eventually(fmt.Sprintf("%d messages were polled", count), func() bool {
		request, err := c.Poll(context.Background(), time.Second)
		if err != nil {
			return false
		}
		messages := request.GetMsgList()
		if len(messages) > largest {
			largest = len(messages)
		}
		for _, message := range messages {
			bodies = append(bodies, string(message.Body))
		}
		c.ACK(context.Background(), request, result)
		return len(bodies) >= count
	})
	sort.Strings(bodies)
	return bodies, largest
}

// poll leaves the size of a batch unsaid: the client then asks for 0 messages.
func poll(w *world) {
	w.createTopic(2)
	w.fill(0, numbered("a", 4)...)
	w.fill(1, numbered("b", 4)...)
	bodies, largest := pollAll(w.startPull(w.topic(), everything), 8, consumer.ConsumeSuccess)
	w.put("bodies", bodies)
	w.put("largest", largest)
}

func pollBatches(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("a", 20)...)
	quiet()
	bodies, largest := pollAll(w.startPull(w.topic(), everything, consumer.WithPullBatchSize(16)), 20, consumer.ConsumeSuccess)
	w.put("bodies", bodies)
	w.put("largest", largest)
}

func pollRetries(w *world) {
	w.createTopic(1)
	w.fill(0, "again")
	c := w.startPull(w.topic(), everything, consumer.WithMaxReconsumeTimes(3))
	first, _ := pollAll(c, 1, consumer.ConsumeRetryLater)
	w.put("first", first)
	w.put("retry", w.stored("%RETRY%pullers-"+w.name, 0, 1))
}

func pull(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("a", 4)...)
	quiet() // an Apache broker shows them a little later
	c := w.startPull(w.topic(), everything)
	found, err := c.Pull(context.Background(), 3)
	must(err)
	w.put("first", toldOfPull(found))
}

func pullFrom(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("a", 8)...)
	c := w.startPull(w.topic(), everything)
	quiet()
	found, err := c.PullFrom(context.Background(), w.queue(0), 2, 3)
	must(err)
	w.put("middle", toldOfPull(found))
	found, err = c.PullFrom(context.Background(), w.queue(0), 6, 32)
	must(err)
	w.put("end", toldOfPull(found))
}

func pullByTag(w *world) {
	w.createTopic(1)
	sendTagged(w)
	quiet()
	c := w.startPull(w.topic(), consumer.MessageSelector{Type: consumer.TAG, Expression: "red || blue"})
	found, err := c.PullFrom(context.Background(), w.queue(0), 0, 32)
	must(err)
	w.put("found", toldOfPull(found))
	none := w.startPull(w.topic(), consumer.MessageSelector{Type: consumer.TAG, Expression: "yellow"}, consumer.WithGroupName("none-"+w.name))
	found, err = none.PullFrom(context.Background(), w.queue(0), 0, 32)
	must(err)
	w.put("none", toldOfPull(found))
}

func pullBySQL(w *world) {
	w.createTopic(1)
	sendTagged(w)
	quiet()
	c := w.startPull(w.topic(), consumer.MessageSelector{Type: consumer.SQL92, Expression: "number > 2"})
	found, err := c.PullFrom(context.Background(), w.queue(0), 0, 32)
	if err != nil {
		w.put("found", failure(err))
		return
	}
	w.put("found", toldOfPull(found))
}

func pullBeyond(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("a", 3)...)
	quiet()
	c := w.startPull(w.topic(), everything)
	found, err := c.PullFrom(context.Background(), w.queue(0), 1000, 32)
	must(err)
	w.put("beyond", toldOfPull(found))
	_, err = c.PullFrom(context.Background(), &primitive.MessageQueue{Topic: w.topic(), BrokerName: brokerName, QueueId: 9}, 0, 32)
	w.put("no such queue", err != nil)
}

func pullOffsets(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("a", 6)...)
	quiet()
	c := w.startPull(w.topic(), everything, consumer.WithPullBatchSize(32))
	pollAll(c, 6, consumer.ConsumeSuccess)
	current, err := c.CurrentOffset(w.queue(0))
	must(err)
	w.put("current", current)
	must(c.UpdateOffset(w.queue(0), 4))
	must(c.PersistOffset(context.Background(), w.topic()))
	must(c.Shutdown())
	again := w.startPull(w.topic(), everything, consumer.WithPullBatchSize(32))
	bodies, _ := pollAll(again, 2, consumer.ConsumeSuccess)
	w.put("again", bodies)
}

func toldOfPull(found *primitive.PullResult) map[string]interface{} {
	bodies := []string{}
	for _, message := range found.GetMessageExts() {
		bodies = append(bodies, string(message.Body))
	}
	return map[string]interface{}{
		"status": int(found.Status),
		"next":   found.NextBeginOffset,
		"min":    found.MinOffset,
		"max":    found.MaxOffset,
		"broker": found.SuggestWhichBrokerId,
		"bodies": bodies,
	}
}
