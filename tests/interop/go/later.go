package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func later() []scenario {
	return []scenario{
		{"go-delay", delay},
		{"go-retry", retry},
		{"go-retry-by-error", retryByError},
		{"go-dead-letter", deadLetter},
		{"go-orderly-again", orderlyAgain},
		{"go-orderly-gives-up", orderlyGivesUp},
		{"go-request", request},
		{"go-request-async", requestAsync},
		{"go-request-unanswered", requestUnanswered},
		{"go-transaction-commit", transactionCommit},
		{"go-transaction-rollback", transactionRollback},
		{"go-transaction-checked", transactionChecked},
		{"go-transaction-checked-and-rolled-back", transactionCheckedAndRolledBack},
	}
}

func delay(w *world) {
	w.createTopic(1)
	w.fill(0, "now")
	received := &heard{}
	w.startPush(everything, received.listen)
	received.waitFor(1)
	begun := time.Now()
	_, err := w.producer().SendSync(context.Background(), w.message(0, "later").WithDelayTimeLevel(2))
	must(err)
	received.waitFor(2)
	waited := time.Since(begun)
	w.put("in time", waited > 1900*time.Millisecond && waited < 6*time.Second)
	w.put("received", received.all())
}

// knownGroup makes the group's retry topic known before a consumer asks for its route: this client asks again
// half a minute later only.
func (w *world) knownGroup() {
	must(w.startPush(everything, (&heard{}).listen).Shutdown())
	eventually("the retry topic has a route", func() bool {
		_, err := w.admin().FetchPublishMessageQueues(context.Background(), "%RETRY%"+w.group())
		return err == nil
	})
}

func retry(w *world) {
	w.createTopic(1)
	w.knownGroup()
	w.fill(0, "again")
	received := &heard{}
	var mutex sync.Mutex
	times := []interface{}{}
	w.startPush(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		received.add(messages...)
		mutex.Lock()
		defer mutex.Unlock()
		times = append(times, messages[0].ReconsumeTimes)
		if len(times) < 3 {
			concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
			concurrently.DelayLevelWhenNextConsume = 1
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	})
	received.waitFor(3)
	quiet()
	mutex.Lock()
	defer mutex.Unlock()
	w.put("times", times)
	first, last := received.messages[0], received.messages[len(received.messages)-1]
	w.put("first", first)
	w.put("last", last)
}

// retryByError leaves the delay to the broker: level 3 and the tries so far.
func retryByError(w *world) {
	w.createTopic(1)
	w.knownGroup()
	w.fill(0, "again")
	received := &heard{}
	w.startPush(everything, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		received.add(messages...)
		if messages[0].ReconsumeTimes == 0 {
			return consumer.ConsumeRetryLater, fmt.Errorf("on purpose")
		}
		return consumer.ConsumeSuccess, nil
	})
	received.waitFor(2)
	w.put("bodies", received.bodies())
	w.put("times", received.messages[1]["reconsumeTimes"])
}

func deadLetter(w *world) {
	w.createTopic(1)
	w.knownGroup()
	w.fill(0, "hopeless")
	received := &heard{}
	w.startPush(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		received.add(messages...)
		concurrently, _ := primitive.GetConcurrentlyCtx(ctx)
		concurrently.DelayLevelWhenNextConsume = 1
		return consumer.ConsumeRetryLater, nil
	}, consumer.WithMaxReconsumeTimes(2))
	received.waitFor(3)
	quiet()
	w.put("tries", received.count())
	w.put("dead", w.storedOfDead())
}

// storedOfDead makes the dead letters readable first: the broker creates their topic for writing only.
func (w *world) storedOfDead() []interface{} {
	w.createTopicNamed("%DLQ%"+w.group(), 1)
	return w.stored("%DLQ%"+w.group(), 0, 1)
}

func orderlyAgain(w *world) {
	w.createTopic(1)
	w.fill(0, numbered("a", 3)...)
	received := &heard{}
	w.startPush(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		received.add(messages...)
		if messages[0].ReconsumeTimes < 2 && string(messages[0].Body) == "a01" {
			orderly, _ := primitive.GetOrderlyCtx(ctx)
			orderly.SuspendCurrentQueueTimeMillis = 200
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true))
	received.waitFor(5)
	w.put("received", received.bodies())
}

func orderlyGivesUp(w *world) {
	w.createTopic(1)
	w.fill(0, "hopeless", "next")
	received := &heard{}
	w.startPush(everything, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		received.add(messages...)
		if string(messages[0].Body) == "hopeless" {
			orderly, _ := primitive.GetOrderlyCtx(ctx)
			orderly.SuspendCurrentQueueTimeMillis = 100
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithMaxReconsumeTimes(1))
	received.waitForBody("next")
	w.put("received", received.bodies())
	w.put("dead", w.storedOfDead())
}

// --- requests and replies ----------------------------------------------------------------------------------

// answering starts a consumer that answers every request, after the second in which this client's own
// producers tell the broker of themselves (its examples wait, too).
func answering(w *world) {
	replier := w.startProducer(producer.WithGroupName("repliers-" + w.name))
	w.startPush(everything, func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			time.Sleep(1500 * time.Millisecond)
			reply, err := consumer.CreateReplyMessage(message, nil)
			if err != nil {
				w.put("reply", err.Error())
				continue
			}
			reply.Body = []byte("answer to " + string(message.Body))
			sent, err := replier.SendSync(context.Background(), reply)
			if err != nil {
				w.put("reply", failure(err))
			} else {
				w.put("reply", int(sent.Status))
			}
		}
		return consumer.ConsumeSuccess, nil
	})
}

func toldOfReply(reply *primitive.Message, err error) interface{} {
	if err != nil {
		return failure(err)
	}
	properties := reply.GetProperties()
	return map[string]interface{}{"topic": reply.Topic, "body": string(reply.Body), "properties": properties}
}

func request(w *world) {
	w.createTopic(1)
	answering(w)
	asking := w.startProducer(producer.WithGroupName("asking-" + w.name))
	reply, err := asking.Request(context.Background(), 15*time.Second, primitive.NewMessage(w.topic(), []byte("question")))
	w.put("answer", toldOfReply(reply, err))
	w.waitForReply()
}

// waitForReply: the answer may be here before its sender is told that it was taken.
func (w *world) waitForReply() {
	eventually("the replier is told", func() bool {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		return w.seen["reply"] != nil
	})
}

func requestAsync(w *world) {
	w.createTopic(1)
	answering(w)
	asking := w.startProducer(producer.WithGroupName("asking-" + w.name))
	answered := make(chan interface{}, 4)
	must(asking.RequestAsync(context.Background(), 15*time.Second, func(_ context.Context, reply *primitive.Message, err error) {
		answered <- toldOfReply(reply, err)
	}, primitive.NewMessage(w.topic(), []byte("question"))))
	w.put("answer", <-answered)
	w.waitForReply()
}

func requestUnanswered(w *world) {
	w.createTopic(1)
	asking := w.startProducer(producer.WithGroupName("asking-" + w.name))
	_, err := asking.Request(context.Background(), time.Second, primitive.NewMessage(w.topic(), []byte("question")))
	w.put("timed out", err != nil)
}

// --- transactions --------------------------------------------------------------------------------------------

// decisions answers what becomes of a transaction, and puts down what it was asked.
type decisions struct {
	mutex   sync.Mutex
	first   primitive.LocalTransactionState
	checked primitive.LocalTransactionState
	checks  []map[string]interface{}
}

func (d *decisions) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return d.first
}

func (d *decisions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.checks = append(d.checks, told(message))
	return d.checked
}

func (w *world) startTransactions(d *decisions) rocketmq.TransactionProducer {
	p, err := rocketmq.NewTransactionProducer(d,
		producer.WithGroupName("deciding-"+w.name),
		producer.WithInstanceName(w.newInstance()),
		producer.WithNsResolver(w.resolver()),
		producer.WithRetry(0))
	must(err)
	must(p.Start())
	w.onClose(func() { _ = p.Shutdown() })
	return p
}

func inTransaction(w *world, d *decisions) *heard {
	w.createTopic(1)
	deciding := w.startTransactions(d)
	sent, err := deciding.SendMessageInTransaction(context.Background(), primitive.NewMessage(w.topic(), []byte("in doubt")).WithTag("t"))
	must(err)
	result := toldOfSend(sent.SendResult, nil)
	delete(result, "offset") // its place among all half messages
	delete(result, "queue")
	w.put("sent", result)
	w.put("state", int(sent.State))
	received := &heard{}
	w.startPush(everything, received.listen)
	return received
}

func withoutPlace(messages []interface{}) []interface{} {
	for _, message := range messages {
		delete(message.(map[string]interface{})["properties"].(map[string]string), "TRAN_PREPARED_QUEUE_OFFSET")
	}
	return messages
}

func transactionCommit(w *world) {
	received := inTransaction(w, &decisions{first: primitive.CommitMessageState})
	received.waitFor(1)
	quiet()
	w.put("received", withoutPlace(received.all()))
}

func transactionRollback(w *world) {
	d := &decisions{first: primitive.RollbackMessageState}
	received := inTransaction(w, d)
	time.Sleep(5 * time.Second)
	w.put("received", received.count())
	w.put("checks", len(d.checks))
}

func transactionChecked(w *world) {
	d := &decisions{first: primitive.UnknowState, checked: primitive.CommitMessageState}
	received := inTransaction(w, d)
	received.waitFor(1)
	quiet()
	w.put("received", withoutPlace(received.all()))
	d.mutex.Lock()
	defer d.mutex.Unlock()
	check := d.checks[0]
	for _, name := range []string{"offset", "queue"} {
		delete(check, name)
	}
	w.put("check", check)
}

func transactionCheckedAndRolledBack(w *world) {
	d := &decisions{first: primitive.UnknowState, checked: primitive.RollbackMessageState}
	received := inTransaction(w, d)
	eventually("it was asked", func() bool {
		d.mutex.Lock()
		defer d.mutex.Unlock()
		return len(d.checks) > 0
	})
	time.Sleep(3 * time.Second)
	w.put("received", received.count())
}
